// Asks for the board once a second and puts in its place what has changed. All that is shown was drawn by the server.
'use strict';

const shown = new Map();

function show(id, html) {
  if (shown.get(id) === html) return;
  shown.set(id, html);
  document.getElementById(id).innerHTML = html;
}

function showFigures(figures) {
  const box = document.getElementById('figures');
  for (const { id, svg } of figures) {
    if (!document.getElementById(id)) {
      const place = document.createElement('div');
      place.id = id;
      box.append(place);
    }
    show(id, svg);
  }
}

async function refresh() {
  const state = document.getElementById('state');
  let wait = 1000;
  try {
    const answer = await fetch('board' + location.search, { cache: 'no-store' });
    if (!answer.ok) throw new Error(await answer.text());
    const board = await answer.json();
    document.title = board.title;
    for (const id of ['name', 'numbers', 'peers', 'churn', 'happened']) show(id, board[id]);
    show('state', board.state);
    state.className = board.class;
    showFigures(board.figures);
    document.body.dataset.ready = 'yes';
    if (board.is_over) wait = 5000;
  } catch (problem) {
    // What was shown stays: it is still the last that is known.
    state.className = 'lost';
    state.textContent = 'Connection lost; showing the last known state. Reopen with: nettorrent dashboard RUN';
    shown.delete('state');
    wait = 3000;
  }
  setTimeout(refresh, wait);
}

refresh();
