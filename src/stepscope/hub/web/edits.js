// Changes to runs: their names, notes, tags, whether they are archived, and their deletion; each said, with its undo.
import { ask, address, runPath } from "./api.js";
import { bytes } from "./parts/format.js";
import { toast } from "./parts/toast.js";

const send = (method, id, body) =>
  ask(address(runPath(id)), {
    method,
    ...(body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {}),
  });

// Change a run; `told(run)` is given the run as it is then, also after an undo. A failure is said, not thrown.
export async function edit(run, change, words, told, label = "Undo") {
  try {
    const answer = await send("PATCH", run.id, change);
    told(answer.run);
    const undone = label === "Undo";
    toast(words, {
      label,
      undo: () => edit(answer.run, answer.undo, undone ? "Undone." : "Redone.", told, undone ? "Redo" : "Undo"),
    });
  } catch (error) {
    toast(`Not changed: ${error.message}`, { bad: true });
  }
}

// Change several runs alike; one undo takes back all.
export async function editAll(ids, change, words, told) {
  const made = await Promise.allSettled(ids.map((id) => send("PATCH", id, change)));
  const done = made.filter((each) => each.status === "fulfilled").map((each) => each.value);
  told();
  const undo = async () => {
    await Promise.allSettled(done.map((answer) => send("PATCH", answer.run.id, answer.undo)));
    told();
    toast("Undone.");
  };
  if (done.length) toast(words(done.length), { undo });
  else toast(`Not changed: ${made[0].reason.message}`, { bad: true });
}

// Delete runs one after the other; throws what the hub said of the first that it kept.
export async function remove(ids) {
  let freed = 0,
    count = 0;
  for (const id of ids) {
    freed += (await send("DELETE", id)).bytes;
    count += 1;
  }
  toast(`Deleted ${count === 1 ? ids[0] : `${count} runs`}. ${bytes(freed)} freed.`);
}
