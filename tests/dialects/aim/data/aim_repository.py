"""The program that wrote aim.tar.xz, with aim 3.29.1: two runs in a repository `.aim`."""

import math

import aim

quiet = {"system_tracking_interval": None, "log_system_params": False, "capture_terminal_logs": False}
run = aim.Run(repo=".", experiment="exp", **quiet)
run["hparams"] = {"lr": 0.5, "layers": [1, 2], "opt": {"name": "adam", "amsgrad": True}, "none": None}
run.name = "first"
run.description = "some notes"
run.add_tag("blue")
for step in range(50):
    loss = math.nan if step == 7 else step / 4
    run.track(loss, name="loss", step=step, epoch=step // 10, context={"subset": "train"})
    run.track(step / 2, name="loss", step=step, context={"subset": "val"})
    run.track({"acc": step, "lr": 1e-3}, step=step)
run.track(math.inf, name="odd", step=3)
run.track(aim.Text("hello"), name="note", step=1)
run.track(aim.Distribution([1.0, 2.0, 2.0, 5.0], bin_count=4), name="weights", step=2)
run.close()
other = aim.Run(repo=".", **quiet)
other.track(1.0, name="x", step=10)
other.track(2.0, name="x", step=5)
other.track(3, name="x", step=10)
other.close()
