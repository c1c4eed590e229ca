// Unpacks the modules of the page that a frame holds, so that it fetches nothing, and starts the view.
(async () => {
  const packed = atob(document.getElementById("modules")?.textContent ?? ""),
    bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0)),
    unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")),
    modules = JSON.parse(await new Response(unpacked).text()),
    map = document.createElement("script"),
    imports = {};
  for (const [name, text] of Object.entries(modules))
    imports["page/" + name] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  map.type = "importmap";
  map.textContent = JSON.stringify({ imports });
  document.head.append(map);
  await import("page/" + "notebook/view.js");
})();
