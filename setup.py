"""The compiled core of the calls: optional, so that the package also installs where nothing can be compiled."""

import os
import sysconfig

from setuptools import Extension, setup

FOLDER = "src/stepscope/sdk/compiled"
CORE = Extension(
    "stepscope.sdk.loop_calls",
    [f"{FOLDER}/loop_calls.c"],
    depends=[f"{FOLDER}/packing.h", f"{FOLDER}/states.h"],
    extra_compile_args=["-std=c11", "-O2", "-fno-strict-aliasing", "-g0", "-Wall", "-Wextra"],
    optional=True,
)
wanted = os.environ.get("STEPSCOPE_PURE_PYTHON", "0").strip().lower() in ("", "0", "false")
setup(ext_modules=[CORE] if wanted and not sysconfig.get_config_var("Py_GIL_DISABLED") else [])
