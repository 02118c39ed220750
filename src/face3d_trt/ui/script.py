"""What Gradio's components leave out in the browser.

A file that is too large, or no picture, is refused before it is sent; Gradio says nothing then. The examples, which are
pictures alone, get names for screen readers.
"""

from __future__ import annotations

# In the page from the beginning, and nobody but the script below changes it: screen readers announce it.
PLACE = '<p id="refused" role="alert" hidden></p>'
_SCRIPT = """
<script>
for (const [kind, files] of [["change", e => e.target.files], ["drop", e => e.dataTransfer?.files]])
  document.addEventListener(kind, event => {
    const file = files(event)?.[0], told = document.querySelector("#refused");
    if (!file || !told || !event.target.closest?.("#photo")) return;
    let why = "";
    if (file.size > MOST)
      why = `this file has ${(file.size / 1048576).toFixed(1)} MiB. What works: at most ${MOST / 1048576} MiB.`;
    else if (!file.type.startsWith("image/"))
      why = "this file is no picture. What works: JPEG, PNG, WebP or BMP.";
    told.hidden = !why;
    told.textContent = why && "No result: " + why;
    if (!why) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (kind === "change") event.target.value = "";
  }, true);
new MutationObserver(() => document.querySelectorAll(".gallery-item").forEach((each, index) => {
  if (!each.ariaLabel) each.ariaLabel = `Example ${index + 1}`;
})).observe(document, {childList: true, subtree: true});
</script>
"""


def head(most: int) -> str:
    """The script, for the page's head.

    Args:
        most: Bytes of a photo's file.
    """
    return _SCRIPT.replace("MOST", str(most))
