"use strict";
// Times of day become local ones, and what is to come counts down by the server's clock.
(() => {
  let offset = 0; // of the server's clock to this one's, ms
  const short = (ms) => {
    const s = Math.max(0, ms) / 1000;
    if (s < 1) return s.toFixed(1) + " s";
    if (s < 60) return Math.round(s) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
  };
  const count = () => {
    for (const e of document.querySelectorAll("[data-until]")) {
      e.textContent = short(Number(e.dataset.until) - Date.now() - offset);
    }
  };
  const local = (root) => {
    for (const e of root.querySelectorAll("time[data-ms]")) {
      const ms = Number(e.dataset.ms);
      if (ms > 0) {
        const at = new Date(ms);
        e.dateTime = at.toISOString();
        e.title = at.toISOString();
        e.textContent = at.toLocaleString();
      }
    }
    count();
  };
  document.addEventListener("DOMContentLoaded", () => {
    const now = document.querySelector("[data-now]");
    if (now && Number(now.dataset.now) > 0) offset = Number(now.dataset.now) - Date.now();
    local(document);
    setInterval(count, 250);
    document.body.addEventListener("htmx:afterSettle", (e) => local(e.target));
    document.body.addEventListener("htmx:sseMessage", (e) => local(e.target));
    document.addEventListener("submit", (e) => {
      const ask = e.submitter && e.submitter.dataset.confirm;
      if (ask && !window.confirm(ask)) e.preventDefault();
    });
  });
})();
