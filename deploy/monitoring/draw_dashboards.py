"""Draws the dashboards as SVG, from what a Prometheus has: a look at them without Grafana.

    python3 draw_dashboards.py PROMETHEUS FOLDER [MINUTES]

PROMETHEUS is its HOST:PORT, MINUTES the time up to now that is drawn (15). Names the queries that get no number,
say of refusals where nothing was refused; fails if no query gets one.
"""

import html
import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

WIDTH, HEIGHT, COLUMNS = 520, 220, 2
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"]
LEGENDS = 14  # more do not fit


def ask(prometheus, query, seconds, step):
    """What a query gives over the last `seconds`: a list of {metric, values}."""
    now = time.time()
    wanted = urllib.parse.urlencode({"query": query, "start": now - seconds, "end": now, "step": step})
    with urllib.request.urlopen(f"http://{prometheus}/api/v1/query_range?{wanted}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def numbers(series):
    return [float(value) for one in series for _, value in one["values"] if value != "NaN"]


def answers(prometheus, path, seconds, step, rate):
    """Of a dashboard, (title, unit, [(legend, query, series), ...]) for each panel. `rate`, a number of
    seconds, stands for Grafana's $__rate_interval: at least four scrapes."""
    for panel in json.loads(path.read_text())["panels"]:
        lines = []
        for target in panel["targets"]:
            query = (target["expr"].replace("$job", ".+").replace("$instance", ".+")
                     .replace("$__rate_interval", f"{rate}s"))
            lines.append((target["legendFormat"], query, ask(prometheus, query, seconds, step)))
        yield panel["title"], panel["fieldConfig"]["defaults"]["unit"], lines


def name_of(legend, labels):
    for label, value in labels.items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend


def number(value):
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{sign}"
    return f"{value:.3g}"


def panel(title, unit, lines):
    """One panel with its origin at 0, 0."""
    series = [(name_of(legend, one["metric"]),
               [(float(t), float(v)) for t, v in one["values"] if v != "NaN"])
              for legend, _, answer in lines for one in answer]
    points = [point for _, values in series for point in values]
    out = [f'<rect width="{WIDTH - 8}" height="{HEIGHT - 8}" fill="#fff" stroke="#ccc"/>',
           f'<text x="8" y="16" font-weight="bold">{html.escape(title)}</text>']
    if not points:
        return out + ['<text x="8" y="60">no data</text>']
    first, last = min(t for t, _ in points), max(t for t, _ in points)
    top = max(v for _, v in points) or 1
    left, right, low, high = 60, WIDTH - 150, HEIGHT - 30, 30

    def place(t, v):
        x = left + (right - left) * ((t - first) / (last - first) if last > first else 0)
        return f"{x:.1f},{low - (low - high) * v / top:.1f}"

    for share in (0, 0.5, 1):
        y = low - (low - high) * share
        out.append(f'<path d="M{left} {y}H{right}" stroke="#eee"/>')
        out.append(f'<text x="{left - 4}" y="{y + 4}" text-anchor="end">{number(top * share)}</text>')
    for i, (name, values) in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        track = " ".join(place(t, v) for t, v in values)
        out.append(f'<polyline points="{track}" fill="none" stroke="{colour}"/>')
        if i < LEGENDS:
            latest = number(values[-1][1]) if values else "-"
            out.append(f'<text x="{right + 6}" y="{high + 12 * i}" fill="{colour}" font-size="9">'
                       f"{html.escape(name[:30])} {latest}</text>")
    return out + [f'<text x="{left}" y="{HEIGHT - 14}">{html.escape(unit)}, {last - first:.0f} s</text>']


def picture(panels):
    rows = -(-len(panels) // COLUMNS)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * COLUMNS}" height="{HEIGHT * rows}" '
           'font-family="sans-serif" font-size="11">']
    for i, one in enumerate(panels):
        out.append(f'<g transform="translate({i % COLUMNS * WIDTH + 4},{i // COLUMNS * HEIGHT + 4})">')
        out += panel(*one) + ["</g>"]
    return "\n".join(out + ["</svg>"])


def draw(prometheus, folder, seconds, step, rate):
    """Writes FOLDER/NAME.svg for each dashboard. Returns how many queries got a number, and those that did not."""
    folder.mkdir(parents=True, exist_ok=True)
    answered, empty = 0, []
    for path in sorted((pathlib.Path(__file__).parent / "dashboards").iterdir()):
        panels = list(answers(prometheus, path, seconds, step, rate))
        (folder / f"{path.stem}.svg").write_text(picture(panels))
        for title, _, lines in panels:
            for _, query, series in lines:
                if numbers(series):
                    answered += 1
                else:
                    empty.append(f"{path.name}, {title}: {query}")
    return answered, empty


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 15
    answered, empty = draw(sys.argv[1], pathlib.Path(sys.argv[2]), 60 * minutes, max(1, minutes // 2), 60)
    if not answered:
        sys.exit("no query gets a number: does Prometheus scrape annulusd, and has it for a minute?")
    if empty:
        print("\n".join(["no numbers yet for", *empty]))


if __name__ == "__main__":
    main()
