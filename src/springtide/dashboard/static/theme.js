// Before the first paint: the theme that was chosen here, if one was.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("springtide-theme"); } catch { /* private windows keep nothing */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  document.documentElement.classList.add("scripted");
})();
