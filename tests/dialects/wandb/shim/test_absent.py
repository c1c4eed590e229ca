"""What wandb has and Stepscope has not is empty wherever a script puts it."""

import os
from collections.abc import Callable

import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim.absent import Absent, safe, tags_of, text
from stepscope.dialects.wandb.shim.start import as_dict


def test_absent_is_as_good_as_none() -> None:
    """A placeholder is ignored as text, id, tag and configuration."""
    nothing = Absent("sdk.lib.runid").generate_id()
    assert (text(nothing), safe(nothing), tags_of(nothing), as_dict(nothing)) == (None, None, (), {})
    assert (text(" "), safe("a/b c"), tags_of("one"), tags_of([1, 2])) == (None, "a-b-c", ("one",), ("1", "2"))
    run = wandb.init(id=nothing, project=nothing, name=nothing, tags=nothing, config=nothing)
    assert "no-" not in run.id
    assert (run.project, run.name, run.tags, run.config.as_dict()) == ("default", run.id, (), {})


def test_every_generated_id_is_another(ignored: Callable[[], set[str]]) -> None:
    """`util.generate_id` works; what else `util` has is absent and counted."""
    ids = {wandb.util.generate_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {8}
    assert len(wandb.util.generate_id(12)) == 12
    first = wandb.init(id=wandb.util.generate_id())
    wandb.finish()
    assert wandb.init(id=wandb.util.generate_id()).id != first.id
    assert not wandb.util.to_json({})
    assert ignored() == {"util.to_json"}


def test_a_path_that_is_absent_is_one_at_which_nothing_lies() -> None:
    """A placeholder works as a path until it is opened."""
    assert not os.path.exists(os.path.join(wandb.restore("model.pt").name, "x"))
