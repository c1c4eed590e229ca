"""The live view in a real kernel: it follows a run that is trained in the same notebook, while the cell is busy."""

from pathlib import Path

import pytest

from tests.late import late

nbclient = late("nbclient", "ipykernel", "anywidget")
nbformat = late("nbformat")

TRAIN = """
import time
for step in range(50):
    run.log({"loss": 1 / (step + 1)}, step=step)
while shown.widget.view["runs"][0]["step"] != 49:  # the cell is busy: only what the view does by itself helps
    time.sleep(0.05)
"""
END = """
run.finish()
shown.widget.following.join(300)
print(shown.widget.following.is_alive(), shown.widget.view["runs"][0]["status"])
"""


@pytest.mark.timeout(900)
def test_it_follows_the_run_of_its_own_notebook(tmp_path: Path) -> None:
    """The widget is in the cell, and its state in the notebook has what was logged after it was shown."""
    begin = f"import stepscope\nrun = stepscope.init(home={str(tmp_path)!r}, name='n', probes=False, otel=False)\n"
    cells = [begin + "shown = stepscope.show(run)\nshown", TRAIN, END]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=600, startup_timeout=300, kernel_name="python3").execute()
    (output,) = [each for each in book.cells[0].outputs if each.output_type == "execute_result"]
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(output.data)
    assert book.cells[2].outputs[0].text == "False finished\n"
    model = output.data["application/vnd.jupyter.widget-view+json"]["model_id"]
    state = book.metadata.widgets["application/vnd.jupyter.widget-state+json"].state[model].state
    assert (state.view.runs[0].name, state.view.runs[0].step, state.view.runs[0].status) == ("n", 49, "finished")
    assert len(state.view.charts[0].lines[0].columns.x) == 50
    assert "export default" in state._esm
