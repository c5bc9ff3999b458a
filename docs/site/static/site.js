// The menu of versions. versions.js, beside the folders of all versions, has the list: it is newer than an old page.
document.addEventListener("DOMContentLoaded", () => {
  const nav = document.querySelector(".versions");
  const versions = window.cuesKafkaVersions || [];
  if (!nav || !versions.length) return;
  const { version, root, page } = nav.dataset;
  const menu = document.createElement("select");
  menu.setAttribute("aria-label", "Version");
  for (const one of versions) menu.add(new Option(one.version, one.version, false, one.version === version));
  menu.addEventListener("change", () => {
    const chosen = versions.find((one) => one.version === menu.value);
    window.location.href = `${root}${chosen.version}/${chosen.pages.includes(page) ? page : "index.html"}`;
  });
  nav.prepend(menu);
  const newest = versions[0];
  if (newest.version === version) return;
  const note = document.createElement("p");
  note.className = "old-version";
  const link = document.createElement("a");
  link.href = `${root}${newest.version}/${newest.pages.includes(page) ? page : "index.html"}`;
  link.textContent = newest.label;
  note.append(`This page is of version ${version}. The newest is `, link, ".");
  document.querySelector("article")?.prepend(note);
});

// A picture that is wider than its box shows its middle first.
window.addEventListener("load", () => {
  for (const box of document.querySelectorAll(".diagram > div")) box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;
});
