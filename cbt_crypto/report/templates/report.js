"use strict";
(() => {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const button = document.querySelector("button.theme");

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches;

  function named() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
  });
  preferred.addEventListener("change", named);
  named();

  // A chart as a file: on white, with its title and the patterns of its bars.
  function standalone(figure) {
    const svg = figure.querySelector(".plot > svg").cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const title = figure.querySelector("figcaption")?.textContent ?? "";
    const top = title ? 26 : 0;
    svg.setAttribute("viewBox", `0 ${-top} ${width} ${height + top}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height + top);
    const make = (tag, attributes, text) => {
      const element = document.createElementNS(svg.namespaceURI, tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.textContent = text ?? "";
      return element;
    };
    svg.prepend(
      document.querySelector("svg.patterns > defs").cloneNode(true),
      make("rect", { y: -top, width, height: height + top, fill: "#ffffff" }),
      make("text", { x: 10, y: -8, "font-size": 14, "font-weight": 600 }, title),
    );
    return { text: new XMLSerializer().serializeToString(svg), width, height: height + top };
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function saveAs(figure, format) {
    const { text, width, height } = standalone(figure);
    const svg = new Blob([text], { type: "image/svg+xml" });
    const name = `${figure.dataset.file}.${format}`;
    if (format === "svg") return save(svg, name);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(blob, name));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }

  function action(text, label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => act(made));
    return made;
  }

  for (const figure of document.querySelectorAll("figure")) {
    const tools = document.createElement("div");
    tools.className = "tools";
    for (const format of ["svg", "png"]) {
      const words = format.toUpperCase();
      tools.append(action(words, `Save this chart as ${words}`, () => saveAs(figure, format)));
    }
    figure.append(tools);
  }

  const copied = document.getElementById("as-markdown");
  if (copied) {
    const place = document.querySelector("header.top .buttons");
    place.prepend(
      action("Copy as Markdown", "Copy headline and summary as Markdown", (made) => {
        const text = copied.textContent;
        const done = () => (made.textContent = "Copied");
        if (navigator.clipboard) return navigator.clipboard.writeText(text).then(done);
        // A page that was opened as a file may not use the clipboard.
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        if (document.execCommand("copy")) done();
        area.remove();
      }),
    );
  }

  function sortBy(table, column, ascending) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const numbers = rows.every((row) => value(row) === "" || !Number.isNaN(Number(value(row))));
    rows.sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      // a cell without a figure stays last, whichever way the others are sorted
      if (one === "" || other === "") return (one === "") - (other === "");
      const order = numbers ? Number(one) - Number(other) : one.localeCompare(other);
      return ascending ? order : -order;
    });
    body.append(...rows);
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sortBy(table, column, ascending);
      });
    });
  }

  // On a phone a wide table or chart says that it goes on.
  function marked() {
    for (const box of document.querySelectorAll(".scroll, .plot"))
      box.classList.toggle("more", box.scrollWidth > box.clientWidth + 4);
  }
  addEventListener("resize", marked);
  marked();

  // a link to what is folded away unfolds it
  function unfold() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();
})();
