"use strict";
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const button = document.querySelector("button.theme");
  const drawn = new Set();

  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches;

  function painted(figure) {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const inks = isDark() ? data.dark : data.light;
    const traces = figure.data.map((trace) => {
      const palette = trace.part ? inks.parts : inks.names;
      const ink = palette[trace.ink % palette.length];
      const copy = { ...trace };
      delete copy.ink;
      delete copy.part;
      if (trace.type === "bar") {
        copy.marker = {
          ...trace.marker,
          color: ink,
          pattern: { ...trace.marker.pattern, fgcolor: colour("--card"), bgcolor: ink },
        };
        if (trace.error_y) copy.error_y = { ...trace.error_y, color: colour("--ink") };
      } else {
        copy.line = { ...trace.line, color: ink };
        if (trace.marker) copy.marker = { ...trace.marker, color: ink };
      }
      return copy;
    });
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line") };
    const layout = {
      ...figure.layout,
      xaxis: { ...axis, ...figure.layout.xaxis },
      yaxis: { ...axis, ...figure.layout.yaxis },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
      margin: { l: 56, r: 12, t: 8, b: 44 },
      legend: {
        orientation: "h",
        x: 0,
        xanchor: "left",
        y: 1.02,
        yanchor: "bottom",
        traceorder: "normal",
      },
      modebar: {
        bgcolor: "rgba(0,0,0,0)",
        color: colour("--soft"),
        activecolor: colour("--ink"),
      },
      hoverlabel: {
        namelength: -1,
        bgcolor: colour("--card"),
        bordercolor: colour("--soft"),
        font: { color: colour("--ink") },
      },
      bargap: 0.22,
      bargroupgap: 0.04,
    };
    return [traces, layout];
  }

  function draw(element) {
    const figure = data.figures[Number(element.dataset.chart)];
    const [traces, layout] = painted(figure);
    Plotly.react(element, traces, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      toImageButtonOptions: { format: "svg", filename: element.dataset.file },
    });
    drawn.add(element);
  }

  const plots = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          near.unobserve(entry.target);
          draw(entry.target);
        }
      }
    },
    { rootMargin: "400px" },
  );
  plots.forEach((plot) => near.observe(plot));
  addEventListener("beforeprint", () => plots.filter((p) => !drawn.has(p)).forEach(draw));

  function named() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
    drawn.forEach(draw);
  });
  preferred.addEventListener("change", () => {
    named();
    drawn.forEach(draw);
  });
  named();

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

  // a link to what is folded away unfolds it
  function unfold() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();
})();
