// Draws what `portolan view` has put into the page. Names come from files of others: they become text, never markup.
'use strict';
(() => {
  const failed = (message) => { document.documentElement.dataset.error = message; };
  addEventListener('error', (event) => failed(event.message));

  const data = JSON.parse(document.getElementById('data').textContent);
  const make = (space) => (tag, attributes = {}, ...inside) => {
    const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else if (name === 'of') element.style.setProperty('--of', `var(--c${value % 6})`);
      else element.setAttribute(name, value);
    }
    element.append(...inside.filter((part) => part !== null));
    return element;
  };
  const h = make(null);
  const s = make('http://www.w3.org/2000/svg');
  const pixels = (x) => Math.round(x * 10) / 10;

  // What needs the width of an element waits until the page has it. No frame is waited for: a browser may never show one.
  const later = [];
  // Draws now and whenever the element has another width.
  const onWidth = (element, draw) => {
    let last = 0;
    const again = () => {
      const width = Math.max(260, Math.floor(element.clientWidth));
      if (width !== last) { last = width; draw(width); }
    };
    new ResizeObserver(again).observe(element);
    again();
  };
  const about = (pairs) => h('dl', {}, ...pairs.flatMap(([key, value]) => [h('dt', {}, key), h('dd', {}, value)]));

  // ---- numbers ----
  const number = (v) => (v >= 1000 ? v.toFixed(0) : v >= 100 ? v.toFixed(1) : v >= 10 ? v.toFixed(2) : v.toFixed(3));
  const short = (v) => (v >= 1e6 ? `${v / 1e6}M` : v >= 1e4 ? `${v / 1e3}k` : `${Math.round(v * 1e6) / 1e6}`);
  const size = (v) => {
    let at = 0;
    while (at < 3 && v > 0 && v % 1024 === 0) { v /= 1024; at += 1; }
    return `${v}${['', 'K', 'M', 'G'][at]}`;
  };
  const time = (ns) => (ns >= 1e6 ? `${(ns / 1e6).toFixed(3)} ms` : ns >= 1e3 ? `${(ns / 1e3).toFixed(3)} µs` : `${Math.round(ns)} ns`);

  // Round values on a logarithmic axis, at most `most` of them.
  const round = (from, to, base, most) => {
    const of = (factors, step) => {
      const found = [];
      const last = Math.ceil(Math.log(to) / Math.log(base)) + 1;
      for (let p = Math.floor(Math.log(from) / Math.log(base)) - 1; p <= last; p += 1) {
        if (((p % step) + step) % step) continue;
        for (const factor of factors) {
          const v = factor * base ** p;
          if (v >= from * 0.999 && v <= to * 1.001) found.push(v);
        }
      }
      return found;
    };
    const fine = of(base === 2 ? [1] : [1, 2, 5], 1);
    if (fine.length <= most) return fine;
    for (let step = 1; ; step += 1) {
      const few = of([1], step);
      if (few.length <= most) return few;
    }
  };

  // ---- curves ----
  const table = (chart) => {
    const rows = chart.series.flatMap((line) => line.points.map(([x, y, q1, q3]) =>
      h('tr', {}, h('td', {}, line.label), h('td', {}, size(x)), h('td', {}, number(y)),
        h('td', {}, q1 === null ? '' : number(q1)), h('td', {}, q3 === null ? '' : number(q3)))));
    const head = ['', chart.x, 'median', 'first quartile', 'third quartile'].map((word) => h('th', {}, word));
    return h('details', {}, h('summary', {}, 'The numbers'),
      h('div', { class: 'table' }, h('table', {}, h('tr', {}, ...head), ...rows)));
  };

  // Where things are: sizes on a logarithmic axis, on which 0 has a place left of the least.
  const across = (points, left, right) => {
    const xs = points.map((p) => p[0]);
    const positive = xs.filter((x) => x > 0);
    let from = positive.length ? Math.min(...positive) : 1;
    let to = positive.length ? Math.max(...positive) : 1;
    const zero = xs.includes(0);
    if (!positive.length) return { place: () => (left + right) / 2, ticks: [0] };
    const least = from;
    if (zero) from /= 4;
    if (to < from * 4) { from /= 2; to *= 2; }
    const scale = (right - left) / Math.log(to / from);
    const place = (x) => left + Math.log((x > 0 ? x : from) / from) * scale;
    const ticks = round(zero ? least : from, to, 2, Math.max(2, Math.floor((right - left) / 48)));
    return { place, ticks: zero ? [0, ...ticks] : ticks };
  };

  const frame = (svg, x, left, right, top, bottom, label) => {
    for (const tick of x.ticks) {
      const at = pixels(x.place(tick));
      svg.append(s('path', { class: 'grid', d: `M${at},${top}V${bottom}` }),
        s('text', { x: at, y: bottom + 15, 'text-anchor': 'middle' }, size(tick)));
    }
    svg.append(s('path', { class: 'axis', d: `M${left},${top}V${bottom}H${right}` }));
    if (label) svg.append(s('text', { x: (left + right) / 2, y: bottom + 32, 'text-anchor': 'middle' }, label));
  };
  const beside = (svg, words, top, bottom) => {
    const middle = (top + bottom) / 2;
    svg.append(s('text', { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, 'text-anchor': 'middle' }, words));
  };

  const curves = (chart, output) => (width) => {
    const [left, right, top, bottom] = [62, width - 10, 8, 270];
    const all = chart.series.flatMap((line) => line.points);
    const x = across(all, left, right);
    const ys = all.flatMap(([, y, q1, q3]) => [y, q1 ?? y, q3 ?? y]).filter((y) => y > 0);
    if (!ys.length) ys.push(1);
    let [low, high] = [Math.min(...ys) / 1.25, Math.max(...ys) * 1.25];
    if (high < low * 4) { const middle = Math.sqrt(low * high); [low, high] = [middle / 2, middle * 2]; }
    const y = (v) => bottom - ((bottom - top) * Math.log(Math.max(v, low) / low)) / Math.log(high / low);
    const svg = s('svg', { viewBox: `0 0 ${width} 306`, role: 'img', 'aria-label': chart.title });
    frame(svg, x, left, right, top, bottom, chart.x);
    for (const tick of round(low, high, 10, 9)) {
      const at = pixels(y(tick));
      svg.append(s('path', { class: 'grid', d: `M${left},${at}H${right}` }),
        s('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, short(tick)));
    }
    beside(svg, chart.y, top, bottom);
    chart.series.forEach((line, of) => {
      const places = line.points.map((p) => [pixels(x.place(p[0])), pixels(y(p[1]))]);
      const fit = line.kind === 'fit';
      svg.append(s('path', { class: fit ? 'curve fit' : 'curve', of, d: places.map((p, i) => `${i ? 'L' : 'M'}${p}`).join('') }));
      if (fit) return;
      line.points.forEach(([, , q1, q3], i) => {
        const [cx, cy] = places[i];
        if (q1 !== null && q3 !== null && q3 > q1) {
          const ends = [pixels(y(q1)), pixels(y(q3))];
          svg.append(s('path', { class: 'whisker', of, d: `M${cx},${ends[0]}V${ends[1]}M${cx - 4},${ends[0]}h8M${cx - 4},${ends[1]}h8` }));
        }
        svg.append(s('circle', { class: 'mark', of, cx, cy, r: places.length === 1 ? 6 : 2.5 }));
      });
    });
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect();
      const [px, py] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * width) / box.width];
      let best = null;
      for (const line of chart.series) {
        for (const p of line.points) {
          const far = (x.place(p[0]) - px) ** 2 + (y(p[1]) - py) ** 2;
          if (!best || far < best.far) best = { far, line, p };
        }
      }
      if (!best) return;
      const [at, value, q1, q3] = best.p;
      const spread = q1 === null ? '' : `, quartiles ${number(q1)} and ${number(q3)}`;
      output.textContent = `${best.line.label}, at ${size(at)}: ${number(value)} ${chart.unit}${spread}`;
    });
    return svg;
  };

  const residuals = (chart) => (width) => {
    const [left, right, top, bottom] = [62, width - 10, 10, 120];
    const all = chart.residuals.flatMap((line) => line.points);
    const x = across(chart.series.flatMap((line) => line.points), left, right);
    const most = Math.max(1, ...all.map((p) => Math.abs(p[1]))) * 1.15;
    const y = (v) => (top + bottom) / 2 - (v / most) * ((bottom - top) / 2);
    const svg = s('svg', { viewBox: `0 0 ${width} 156`, role: 'img', 'aria-label': `${chart.title}: residuals` });
    frame(svg, x, left, right, top, bottom, chart.x);
    const step = [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((v) => most / v < 2.5) ?? 1000;
    for (let v = -Math.floor(most / step) * step; v <= most; v += step) {
      const at = pixels(y(v));
      const zero = Math.abs(v) < step / 2;
      svg.append(s('path', { class: zero ? 'axis' : 'grid', d: `M${left},${at}H${right}` }),
        s('text', { x: left - 6, y: at + 4, 'text-anchor': 'end' }, `${v > 0 && !zero ? '+' : ''}${Math.round(v * 10) / 10}`));
    }
    beside(svg, 'residual, %', top, bottom);
    for (const line of chart.residuals) {
      for (const [at, percent, seen] of line.points) {
        const place = { of: line.of, cx: pixels(x.place(at)), cy: pixels(y(percent)), r: 3.5 };
        svg.append(s('circle', { class: seen ? 'mark residual hollow' : 'mark residual', ...place },
          s('title', {}, `${line.label}, at ${size(at)}: ${percent.toFixed(1)} %${seen ? ', the model was fitted on it' : ''}`)));
      }
    }
    return svg;
  };

  const figure = (chart) => {
    const output = h('output', {}, chart.spread);
    const key = chart.series.map((line, of) => h('li', { of }, `${line.label} `, h('span', { class: 'kind faint' }, line.standing)));
    const place = h('div');
    const inside = [h('figcaption', {}, h('h3', {}, chart.title), h('span', { class: 'faint' }, chart.about)),
      h('ul', { class: 'key' }, ...key), place, output];
    const drawn = [[place, curves(chart, output)]];
    if (chart.residuals.length) {
      const below = h('div');
      const words = 'Residuals: the model over the published value, less 1. Rings: points that the model was fitted on.';
      inside.push(h('p', { class: 'faint' }, words), below);
      drawn.push([below, residuals(chart)]);
    }
    const all = h('figure', {}, ...inside, table(chart));
    later.push(() => drawn.forEach(([at, draw]) => onWidth(at, (width) => at.replaceChildren(draw(width)))));
    return all;
  };

  const bench = (source) => h('section', {}, h('h2', {}, source.file), about(source.about),
    ...source.notes.map((note) => h('p', { class: 'faint' }, note)),
    h('div', { class: 'charts' }, ...source.charts.map(figure)));

  // ---- timeline and torus ----
  const KINDS = ['rank', 'host', 'firmware', 'tx', 'headers', 'rx', 'link', 'port'];
  const COLOUR = [3, 1, 0, 2, 4, 4, 5, 5];

  const trace = (source) => {
    const { rows, names, slices, instants, flows, nodes, end } = source;
    rows.forEach((row) => Object.assign(row, { slices: [], instants: [], kind: Math.max(0, KINDS.indexOf(row.name.split(' ')[0])) }));
    slices.forEach((slice, at) => rows[slice[0]].slices.push(at));
    instants.forEach((instant, at) => rows[instant[0]].instants.push(at));
    const shown = rows.filter((row) => row.slices.length || row.instants.length);
    const steps = slices.map((_, at) => at).filter((at) => ![6, 7].includes(rows[slices[at][0]].kind));
    let [from, to, chosen] = [0, Math.max(1, end), null];
    const [ROW, HEAD] = [17, 20];

    const ruler = h('div', { class: 'ruler' });
    const body = h('div');
    const said = h('output', {}, 'Choose a call, or step through the timeline.');
    const describe = (at) => {
      const [row, start, length, name, more] = slices[at];
      const place = steps.indexOf(at);
      const step = place < 0 ? '' : `step ${place + 1} of ${steps.length}: `;
      const node = nodes.find((n) => n.pid === rows[row].pid);
      return `${step}${node ? node.name : ''}, ${rows[row].name}: ${names[name]}, ${time(start)} to ${time(start + length)} (${time(length)})${more ? `, ${more}` : ''}`;
    };

    let y = 0;
    let last = null;
    for (const row of shown) {
      if (row.pid !== last) { row.head = y; y += HEAD; last = row.pid; }
      row.y = y;
      y += ROW;
    }
    const height = y + 6;

    let width = 800;
    const draw = () => {
      const left = width < 520 ? 74 : 104;
      const x = (t) => left + ((t - from) / (to - from)) * (width - left - 6);
      const top = s('svg', { viewBox: `0 0 ${width} 34` });
      const step = [1, 2, 5].flatMap((f) => [...Array(12).keys()].map((p) => f * 10 ** p)).sort((a, b) => a - b)
        .find((v) => ((to - from) / v) * 70 < width - left) ?? 1e12;
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        const at = pixels(x(t));
        top.append(s('path', { class: 'axis', d: `M${at},26v8` }), s('text', { x: at, y: 22, 'text-anchor': 'middle' }, short(t / 1000)));
      }
      top.append(s('text', { x: 4, y: 22 }, 'µs, simulated'));
      ruler.replaceChildren(top);

      const svg = s('svg', { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: 'img', 'aria-label': 'timeline' });
      for (const row of shown) {
        if (row.head !== undefined) {
          const node = nodes.find((n) => n.pid === row.pid);
          svg.append(s('g', { class: 'node' }, s('text', { x: 4, y: row.head + 15 }, node ? node.name : '')));
        }
        const middle = row.y + ROW / 2;
        svg.append(s('text', { x: left - 6, y: middle + 4, 'text-anchor': 'end' }, row.name),
          s('path', { class: 'grid', d: `M${left},${row.y + ROW}H${width}` }));
        // What is narrower than a pixel is drawn with what follows it.
        let open = null;
        const close = () => {
          if (!open) return;
          svg.append(s('rect', { class: 'box many', of: COLOUR[row.kind], x: pixels(open[0]), y: row.y + 2, width: pixels(Math.max(0.6, open[1] - open[0])), height: ROW - 4 }));
          open = null;
        };
        for (const at of row.slices) {
          const [, start, length, name] = slices[at];
          if (start + length < from || start > to) continue;
          const [a, b] = [Math.max(left, x(start)), Math.min(width, x(start + length))];
          if (b - a < 1.5 && at !== chosen) {
            if (open && a - open[1] < 1) open[1] = Math.max(open[1], b);
            else { close(); open = [a, b]; }
            continue;
          }
          close();
          const box = s('rect', { class: at === chosen ? 'box chosen' : 'box', of: COLOUR[row.kind], x: pixels(a), y: row.y + 2, width: pixels(Math.max(0.6, b - a)), height: ROW - 4 },
            s('title', {}, describe(at)));
          box.addEventListener('click', () => choose(at, false));
          svg.append(box);
          if (b - a > 7 * names[name].length) svg.append(s('text', { class: 'within', x: pixels(a + 3), y: middle + 3.5 }, names[name]));
        }
        close();
        let before = -9;
        for (const at of row.instants) {
          const [, when, name, more] = instants[at];
          const place = x(when);
          if (when < from || when > to || place - before < 1) continue;
          before = place;
          svg.append(s('path', { class: 'instant', of: COLOUR[row.kind], d: `M${pixels(place)},${row.y}v${ROW}` },
            s('title', {}, `${names[name]}, ${time(when)}${more ? `, ${more}` : ''}`)));
        }
      }
      const seen = flows.filter(([, a, , b]) => b >= from && a <= to);
      if (seen.length <= 300) {
        for (const [r1, a, r2, b] of seen) {
          const [one, two] = [rows[r1].y + ROW / 2, rows[r2].y + ROW / 2];
          const ends = [Math.max(left, x(a)), Math.min(width, x(b))].map(pixels);
          svg.append(s('path', { class: 'flow', d: `M${ends[0]},${one}L${ends[1]},${two}` }));
        }
      }
      listen(svg, left);
      body.replaceChildren(svg);
      loads();
    };

    const show = (a, b) => {
      const length = Math.min(Math.max(b - a, 20), Math.max(end, 20));
      from = Math.min(Math.max(0, a), Math.max(0, end - length));
      to = from + length;
      draw();
    };
    const zoom = (factor, middle = (from + to) / 2) => show(middle - (middle - from) * factor, middle + (to - middle) * factor);
    const choose = (at, move) => {
      chosen = at;
      const [, start, length] = slices[at];
      if (move && (start < from || start + length > to || length * 200 < to - from)) {
        const around = Math.max(4 * length, Math.min(to - from, 2000));
        show(start - around / 3, start - around / 3 + around);
      } else draw();
      said.textContent = describe(at);
    };
    const move = (by) => {
      if (!steps.length) return;
      const place = steps.indexOf(chosen);
      const first = steps.findIndex((at) => slices[at][1] >= from);
      const next = place < 0 ? Math.max(0, first) : Math.min(steps.length - 1, Math.max(0, place + by));
      choose(steps[next], true);
    };

    // Two fingers or a wheel zoom, one pans; sideways only, so that the page still scrolls.
    const held = new Map();
    const listen = (svg, left) => {
      const when = (event) => {
        const box = svg.getBoundingClientRect();
        return from + (((event.clientX - box.left) * width) / box.width - left) / (width - left - 6) * (to - from);
      };
      svg.addEventListener('wheel', (event) => {
        if (!event.ctrlKey && Math.abs(event.deltaY) > Math.abs(event.deltaX) && !event.shiftKey) return;
        event.preventDefault();
        if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, when(event));
        else { const by = ((event.deltaX || event.deltaY) / width) * (to - from); show(from + by, to + by); }
      }, { passive: false });
      svg.addEventListener('dblclick', (event) => zoom(0.4, when(event)));
      svg.addEventListener('keydown', (event) => {
        const done = { ArrowRight: () => move(1), ArrowLeft: () => move(-1), '+': () => zoom(0.5), '-': () => zoom(2) }[event.key];
        if (done) { event.preventDefault(); done(); body.firstChild.focus(); }
      });
    };
    body.addEventListener('pointerdown', (event) => held.set(event.pointerId, event.clientX));
    addEventListener('pointerup', (event) => held.delete(event.pointerId));
    addEventListener('pointercancel', (event) => held.delete(event.pointerId));
    body.addEventListener('pointermove', (event) => {
      if (!held.has(event.pointerId)) return;
      const before = [...held.values()];
      const by = event.clientX - held.get(event.pointerId);
      if (held.size === 1 && Math.abs(by) < 3) return;
      held.set(event.pointerId, event.clientX);
      if (held.size === 1) { const t = (-by / width) * (to - from); show(from + t, to + t); return; }
      const now = [...held.values()];
      const apart = ([a, b]) => Math.max(10, Math.abs(a - b));
      zoom(apart(before) / apart(now));
    });

    // ---- the torus: each link with its load in the time that is shown ----
    const [nx, ny, nz] = source.topology;
    const [CELL, DEPTH] = [110, 46];
    const at = ([px, py, pz]) => [60 + px * CELL + pz * DEPTH, 50 + py * CELL + (nz - 1 - pz) * DEPTH];
    const [far, low] = at([nx - 1, ny - 1, nz - 1]).map((v, i) => v + [70, 44 + (nz - 1) * DEPTH][i]);
    const place = h('div', { class: 'torus' });
    const loaded = h('output');
    const WAYS = { 'x+': [1, 0, 0], 'x-': [-1, 0, 0], 'y+': [0, 1, 0], 'y-': [0, -1, 0], 'z+': [0, 0, 1], 'z-': [0, 0, -1] };
    const links = rows.filter((row) => row.name.startsWith('link ')).map((row) => ({ row, way: row.name.slice(5) })).filter((l) => WAYS[l.way]);
    const busy = (row) => row.slices.reduce((sum, i) => sum + Math.max(0, Math.min(to, slices[i][1] + slices[i][2]) - Math.max(from, slices[i][1])), 0);
    // A link by its place, as tables and fault files name it; by the name of its node in files without places.
    const called = ({ row, way }) => {
      const node = nodes.find((n) => n.pid === row.pid);
      return node?.at ? `(${node.at}) ${way}` : `${node?.name}, ${way}`;
    };
    function loads() {
      if (!place.isConnected && !place.parentNode) return;
      const svg = s('svg', { viewBox: `0 0 ${far} ${low}`, role: 'img', 'aria-label': 'torus' });
      svg.style.maxWidth = `${Math.min(900, far * 1.4)}px`;
      const shares = links.map(({ row }) => Math.min(1, busy(row) / (to - from)));
      const most = Math.max(...shares, 0);
      const busiest = links[shares.indexOf(most)];
      loaded.textContent = most > 0
        ? `From ${time(from)} to ${time(to)} the busiest link is ${called(busiest)}: in use ${(100 * most).toFixed(1)} % of the time.`
        : `From ${time(from)} to ${time(to)} no link is in use.`;
      links.forEach(({ row, way }, i) => {
        const node = nodes.find((n) => n.pid === row.pid);
        if (!node || !node.at) return;
        const next = node.at.map((v, i) => v + WAYS[way][i]);
        const inside = next.every((v, i) => v >= 0 && v < source.topology[i]);
        const axis = WAYS[way].findIndex((v) => v !== 0);
        if (source.topology[axis] < 2 || (!inside && !source.wraps[axis])) return;
        const [x1, y1] = at(node.at);
        const [x2, y2] = at(next);
        // A link that closes a ring ends halfway; each direction has its own side.
        const part = inside ? 1 : 0.45;
        const long = Math.hypot(x2 - x1, y2 - y1);
        const [ox, oy] = [(-(y2 - y1) / long) * 4, ((x2 - x1) / long) * 4];
        const share = shares[i];
        const line = s('path', { class: 'link', d: `M${pixels(x1 + ox)},${pixels(y1 + oy)}L${pixels(x1 + ox + (x2 - x1) * part)},${pixels(y1 + oy + (y2 - y1) * part)}` },
          s('title', {}, `${called({ row, way })}: ${(100 * share).toFixed(1)} % in use`));
        line.style.stroke = `color-mix(in srgb, var(--load) ${share > 0 ? Math.round(20 + (80 * share) / most) : 0}%, var(--load0))`;
        if (!inside) line.style.strokeDasharray = '5 3';
        svg.append(line);
      });
      for (const node of nodes) {
        if (!node.at) continue;
        const [cx, cy] = at(node.at);
        svg.append(s('circle', { class: 'dot', cx, cy, r: 13 }, s('title', {}, node.name)),
          s('g', { class: 'node' }, s('text', { x: cx, y: cy + 4, 'text-anchor': 'middle' }, node.name.split(' ')[1] ?? '')));
      }
      place.replaceChildren(svg);
    }

    const calls = steps.filter((i) => rows[slices[i][0]].kind === 0).slice(0, 500);
    const pick = h('select', { 'aria-label': 'call', onchange: (event) => {
      if (event.target.value === '') return;
      const i = Number(event.target.value);
      const [, start, length] = slices[i];
      chosen = i;
      show(start - 500, start + Math.max(length * 1.2, 12000));
      said.textContent = describe(i);
    } }, h('option', { value: '' }, 'Show a call…'),
    ...calls.map((i) => h('option', { value: i }, `${rows[slices[i][0]].name}: ${names[slices[i][3]]}, ${time(slices[i][1])}`)));
    const button = (words, done) => h('button', { type: 'button', onclick: done }, words);
    const bar = h('div', { class: 'bar' }, pick, button('Previous', () => move(-1)), button('Next', () => move(1)),
      button('Zoom in', () => zoom(0.5)), button('Zoom out', () => zoom(2)), button('All', () => show(0, end)));
    later.push(() => onWidth(body, (wide) => {
      width = wide;
      draw();
    }));
    if (source.first !== null) { [from, to] = source.first; }
    return h('section', {}, h('h2', {}, source.file), about(source.about), ...source.notes.map((note) => h('p', { class: 'faint' }, note)),
      h('figure', {}, h('figcaption', {}, h('h3', {}, 'The torus'),
        h('span', { class: 'faint' }, 'Each link one way, the stronger its colour the more of the time shown below it is in use (simulated). Dashed: links that close a ring.')), place, loaded),
      h('h3', {}, 'The timeline'),
      h('p', { class: 'faint' }, 'Drag to move; Ctrl and the wheel, two fingers or + and − zoom; ← and → step. Lines join a message’s transmit to its header.'),
      bar, said, h('div', { class: 'rows' }, ruler, body));
  };

  // ---- links over time ----
  const links = (source) => {
    const { rows, columns, from, width: wide } = source;
    const most = Math.max(0, ...rows.flatMap((row) => row.cells.map((cell) => cell[1])));
    const [ROW, HEAD, FOOT] = [13, 6, 40];
    const shade = (share) => Math.min(20, Math.ceil((20 * share) / most));
    const colour = (step) => `color-mix(in srgb, var(--load) ${5 * step}%, var(--load0))`;
    const words = (row, column, share) => `${row.link}, ${time(1000 * (from + column * wide))} to ${time(1000 * (from + (column + 1) * wide))}: ${(100 * share).toFixed(1)} % in use`;
    const said = h('output', {}, most > 0 ? `The darkest is ${(100 * most).toFixed(1)} % in use.` : 'No link is in use.');
    const draw = (width) => {
      const [left, right] = [92, width - 8];
      const bottom = HEAD + rows.length * ROW;
      const x = (column) => left + (column / columns) * (right - left);
      const svg = s('svg', { viewBox: `0 0 ${width} ${bottom + FOOT}`, role: 'img', 'aria-label': 'links over time' });
      rows.forEach((row, at) => {
        const y = HEAD + at * ROW;
        svg.append(s('text', { x: left - 6, y: y + 10, 'text-anchor': 'end' }, row.link));
        // Neighbours of one shade are drawn as one.
        let open = null;
        const close = () => {
          if (!open) return;
          const box = s('rect', { class: 'heat', x: pixels(x(open.first)), y, width: pixels(x(open.last + 1) - x(open.first)), height: ROW - 1 });
          box.style.fill = colour(open.step);
          svg.append(box);
        };
        for (const [column, share] of row.cells) {
          const step = shade(share);
          if (open && open.step === step && open.last + 1 === column) open.last = column;
          else { close(); open = { first: column, last: column, step }; }
        }
        close();
        svg.append(s('path', { class: 'grid', d: `M${left},${y + ROW - 0.5}H${right}` }));
      });
      const span = columns * wide;
      const step = [1, 2, 5].flatMap((f) => [...Array(16).keys()].map((p) => f * 10 ** (p - 3))).sort((a, b) => a - b)
        .find((v) => (span / v) * 70 < right - left) ?? span;
      for (let n = Math.ceil(from / step - 1e-6); n * step <= from + span + 1e-6; n++) {
        const at = pixels(left + ((n * step - from) / span) * (right - left));
        svg.append(s('path', { class: 'axis', d: `M${at},${bottom}v5` }), s('text', { x: at, y: bottom + 17, 'text-anchor': 'middle' }, `${Math.round(n * step * 1000) / 1000}`));
      }
      svg.append(s('text', { x: (left + right) / 2, y: bottom + 33, 'text-anchor': 'middle' }, 'virtual time, µs (simulated)'));
      svg.addEventListener('pointermove', (event) => {
        const box = svg.getBoundingClientRect();
        const [px, py] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * width) / box.width];
        const row = rows[Math.floor((py - HEAD) / ROW)];
        const column = Math.floor(((px - left) / (right - left)) * columns);
        if (!row || column < 0 || column >= columns) return;
        const cell = row.cells.find((c) => c[0] === column);
        said.textContent = words(row, column, cell ? cell[1] : 0);
      });
      return svg;
    };
    const place = h('div');
    later.push(() => onWidth(place, (width) => place.replaceChildren(draw(width))));
    return h('section', {}, h('h2', {}, source.file), about(source.about), ...source.notes.map((note) => h('p', { class: 'faint' }, note)),
      h('figure', {}, h('figcaption', {}, h('h3', {}, 'Links over time'),
        h('span', { class: 'faint' }, `Each link one way, by the place that it leaves and its direction; “node” is the port into the node. The stronger the colour, the more of ${time(1000 * wide)} it is in use (simulated).`)), place, said));
  };

  const page = document.getElementById('page');
  page.replaceChildren(h('h1', {}, data.title), about(data.about),
    ...data.sources.map((source) => ({ trace, links, bench })[source.kind](source)));
  later.forEach((draw) => draw());
  document.documentElement.dataset.drawn = '';
})();
