"""Draws a dashboard of Grafana as an SVG within a page: the panels' places, titles, units, legends, thresholds and mappings.

Types of panels: `row`, `stat`, `timeseries`, `state-timeline` and `table`. Another one is an error, and so is a unit that
is not in `UNITS`, so that a picture never shows something else than what the dashboard says.
"""

import collections
import datetime
import html
import itertools
import math
import re
import struct
import zlib

WIDTH, MARGIN, GAP, CELL, HEAD, FOOT = 1280, 16, 8, 34, 64, 34
COLUMN = (WIDTH - 2 * MARGIN + GAP) / 24
INK, SOFT, LINE, PAPER, GROUND = "#1f2933", "#5f6b7a", "#e3e7ec", "#ffffff", "#f3f5f7"
NAMED = {"green": "#2e8b57", "red": "#c8373a", "orange": "#d9822b", "yellow": "#c9a000", "blue": "#3b73b9"}
# `palette-classic`: colours in the order of the series.
PALETTE = ["#2e8b57", "#d9a400", "#3b73b9", "#d96c2b", "#c8373a", "#4aa3a2", "#8c5fb0", "#8a6d3b", "#6b7f2a", "#b0527d", "#546a7b", "#9b9b9b",
           "#86c5a0", "#efcf6d", "#8fb4e0", "#efae86", "#e48f91", "#9ad3d2", "#bfa3d6", "#c4ab7f"]
# What stands behind a value, by unit of Grafana. Those of time and bytes are scaled.
UNITS = {"short": "", "reqps": " req/s", "ops": " ops/s", "cps": " c/s", "percentunit": "%", "s": " s", "bytes": " B", "dateTimeFromNow": ""}

# The larger units in which ticks of an axis are whole.
WHOLES = {"s": [86400, 3600, 60], "bytes": [2 ** 30, 2 ** 20, 2 ** 10]}


# ---- values


def digits(value, step=None):
    """A number with as many decimals as it takes to tell steps apart, and three digits where there is no step."""
    if value == 0:
        return "0"
    if step:
        decimals = next(number for number in range(7) if number == 6 or abs(step * 10 ** number - round(step * 10 ** number)) < 1e-6)
    else:
        decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value, step, scales):
    """A value in the largest unit that is not larger than it, and in which steps have two decimals at most."""
    fitting = [(factor, name) for factor, name in scales if not step or factor < 1 or abs(round(step / factor, 2) * factor - step) < 1e-6]
    factor, name = next(((factor, name) for factor, name in fitting if abs(value) >= factor), scales[-1])
    return f"{digits(value / factor, step / factor if step else None)} {name}"


def whole(value, scales):
    """A value in the largest unit that is not larger than it, without decimals."""
    factor, name = next(((factor, name) for factor, name in scales if value >= factor), scales[-1])
    return f"{value / factor:.0f} {name}"


def shown(value, unit, defaults=None, step=None, now=0):
    """A value in its unit, as Grafana would write it."""
    if unit not in UNITS:
        raise SystemExit(f"the unit `{unit}` cannot be drawn")
    if value is None:
        return "NaN"
    if unit == "dateTimeFromNow":
        return whole(max(0, now - value / 1000), [(86400, "days ago"), (3600, "hours ago"), (60, "minutes ago"), (1, "seconds ago")])
    if unit == "s" and value:
        return scaled(value, step, [(31557600, "years"), (604800, "weeks"), (86400, "days"), (3600, "hours"), (60, "mins"), (1, "s"),
                                    (1e-3, "ms"), (1e-6, "µs")])
    if unit == "bytes" and value:
        return scaled(value, step, [(2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB"), (1, "B")])
    if unit == "percentunit":
        return f"{digits(100 * value, 100 * step if step else None)}%"
    if "decimals" in (defaults or {}):
        return f"{value:.{defaults['decimals']}f}{UNITS[unit]}"
    if unit == "short" and abs(value) >= 1000:
        return scaled(value, step, [(1e9, "Bil"), (1e6, "Mil"), (1e3, "K")])
    return digits(value, step) + UNITS[unit]


def mapped(value, defaults):
    """What a value mapping says instead of a value: its text and its colour."""
    for mapping in defaults.get("mappings", []):
        option = mapping["options"].get(digits(value)) if mapping["type"] == "value" and value is not None else None
        if option:
            return option["text"], NAMED[option["color"]]
    return None


def colour(value, defaults):
    """The colour of one value: of its threshold, or the first of the palette."""
    if defaults["color"]["mode"] != "thresholds" or value is None:
        return PALETTE[0]
    reached = [step for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
    return NAMED[reached[-1]["color"]]


def named(labels, form):
    """The name of a series in the legend."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), form)


# ---- pieces of SVG


def text(x, y, words, size=11, fill=INK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def rectangle(x, y, width, height, fill, stroke="none", radius=0, opacity=1):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}" stroke="{stroke}" '
            f'rx="{radius}" fill-opacity="{opacity}"/>')


def breadth(words, size):
    """About as wide as these words are."""
    return len(words) * size * 0.52


def clipped(words, size, room):
    return words if breadth(words, size) <= room else words[:max(1, int(room / size / 0.52) - 1)] + "…"


def legend(x, bottom, width, entries, most=4):
    """The legend above `bottom`, in as many lines as it takes, and how high it is."""
    lines, at = [[]], 0
    for name, fill in entries:
        name = clipped(name, 10, width - 30)
        need = breadth(name, 10) + 30
        if at + need > width and lines[-1]:
            lines.append([])
            at = 0
        lines[-1].append((at, name, fill))
        at += need
    left_out = sum(len(line) for line in lines[most:])
    lines = lines[:most]
    out, height = [], 14 * len(lines)
    for number, line in enumerate(lines):
        y = bottom - height + 14 * number + 10
        for at, name, fill in line:
            out.append(rectangle(x + at, y - 5, 12, 3, fill) + text(x + at + 16, y, name, 10, SOFT))
    if left_out:
        out.append(text(x + width, bottom - 4, f"and {left_out} more", 10, SOFT, "end"))
    return "".join(out), height


# ---- axes


def linear(low, high, room, unit):
    """Ticks of a linear axis, their step, and its bounds."""
    if high <= low:
        high = low + (abs(low) or 1)
    size = next((size for size in WHOLES.get(unit, []) if high >= 2 * size), 1)
    low, high = low / size, high / size
    rough = (high - low) / max(2, room / 38)
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    step *= size
    return [number * step for number in range(first, last + 1)], step, first * step, last * step


def logarithmic(low, high):
    """Ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, or the powers alone where there are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0 ** power for power in powers for factor in ((1, 2, 5) if len(powers) < 4 else (1,))]
    first = max([tick for tick in ticks if tick <= low * 1.0001], default=ticks[0])
    last = min([tick for tick in ticks if tick >= high * 0.9999], default=ticks[-1])
    return [tick for tick in ticks if first <= tick <= last], first, max(last, first * 2)


def clock(x, width, top, bottom, start, end):
    """Lines and times below a panel with time from left to right."""
    step = next(step for step in (15, 30, 60, 120, 300, 600, 1800) if (end - start) / step <= width / 70)
    out = []
    for at in range(math.ceil(start / step) * step, int(end) + 1, step):
        where = x + width * (at - start) / (end - start)
        words = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%H:%M:%S" if step < 60 else "%H:%M")
        out.append(f'<path d="M{where:.1f} {top:.1f}V{bottom:.1f}" stroke="{LINE}"/>')
        if x + 10 <= where <= x + width + 8 - breadth(words, 10) / 2:
            out.append(text(where, bottom + 13, words, 10, SOFT, "middle"))
    return "".join(out)


def marked(notes, step, x, width, top, bottom, start, end):
    """Annotations: one line for each, and a shade where one goes on."""
    out, spans = [], []
    for at in sorted(notes):
        if spans and at - spans[-1][1] <= step:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    for first, last in spans:
        left, right = (x + width * (at - start) / (end - start) for at in (first, last))
        out.append(rectangle(left, top, right - left, bottom - top, NAMED["blue"], opacity=0.07))
        out += [f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}" stroke="{NAMED["blue"]}" stroke-dasharray="3 3" stroke-opacity=".7"/>'
                for at in sorted({left, right})]
    return "".join(out)


# ---- panels


def runs(points, step):
    """Points in pieces without a gap between them: Grafana does not connect over nulls."""
    pieces, last = [], None
    for at, value in points:
        if value is None:
            last = None
            continue
        if last is None or at - last > 1.5 * step:
            pieces.append([])
        pieces[-1].append((at, value))
        last = at
    return pieces


def stacked(all_series, step, moments):
    """Each series as pieces of (time, lower, upper), one on the other. Where a series begins or ends it comes up from nothing."""
    floor, out = dict.fromkeys(moments, 0), []
    for each in all_series:
        values = {at: value for at, value in each["points"] if value is not None}
        filled = [[at, values.get(at, 0 if at - step in values or at + step in values else None)] for at in moments]
        pieces = []
        for piece in runs(filled, step):
            pieces.append([(at, floor[at], floor[at] + value) for at, value in piece])
        for at, value in filled:
            floor[at] += value or 0
        out.append(pieces)
    return out


class Axis:
    """An axis of values: its ticks with their labels, and where a value is between `top` and `bottom`."""

    def __init__(self, values, unit, defaults, top, bottom):
        logs = defaults["custom"].get("scaleDistribution", {}).get("type") == "log"
        self.top, self.bottom, self.logs = top, bottom, logs and all(value > 0 for value in values)
        if self.logs:
            ticks, self.low, self.high = logarithmic(min(values), max(values))
            self.ticks = [(value, shown(value, unit)) for value in ticks]
        else:
            floor = min(values + ([defaults["min"]] if "min" in defaults else []))
            ticks, step, self.low, self.high = linear(floor, max(values), bottom - top, unit)
            self.ticks = [(value, shown(value, unit, None, step)) for value in ticks]
        self.room = max(24, max(breadth(label, 10) for _, label in self.ticks))

    def place(self, value):
        if self.logs:
            part = (math.log(max(value, self.low)) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.bottom - (self.bottom - self.top) * part


def overridden(panel, each):
    """What overrides say of a series by its name: by property."""
    return {item["id"]: item["value"] for override in panel["fieldConfig"]["overrides"]
            if override["matcher"] == {"id": "byName", "options": each["name"]} for item in override["properties"]}


def time_series(panel, all_series, box, said, notes):
    x, y, width, height = box
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    start, end, step = said["start"], said["end"], said["interval"]
    key, taken = legend(x + 10, y + height - 6, width - 20, [(each["name"] or "Value", each["colour"]) for each in all_series])
    top, bottom = y + 8, y + height - taken - 28
    piles = custom["stacking"]["mode"] == "normal"
    pieces = stacked(all_series, step, range(start, end + 1, step)) if piles else [
        [[(at, None, value) for at, value in piece] for piece in runs(each["points"], step)] for each in all_series]
    own = [overridden(panel, each) for each in all_series]
    sides = [properties.get("custom.axisPlacement", "left") for properties in own]
    axes = {}
    for side in sorted(set(sides)):
        values = [upper for each, at in zip(pieces, sides) if at == side for piece in each for _, _, upper in piece]
        unit = next(properties.get("unit", defaults["unit"]) for properties, at in zip(own, sides) if at == side)
        axes[side] = Axis(values, unit, defaults, top, bottom)
    left = x + 14 + (axes["left"].room if "left" in axes else 0)
    right = x + width - 14 - (axes["right"].room if "right" in axes else 0)
    out = [clock(left, right - left, top, bottom, start, end)]
    for side, axis in axes.items():
        for value, label in axis.ticks:
            at = axis.place(value)
            if side == "left" or len(axes) == 1:
                out.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="{LINE}"/>')
            out.append(text(left - 5 if side == "left" else right + 5, at + 3.5, label, 10, SOFT, "end" if side == "left" else "start"))
    out.append(marked(*notes, left, right - left, top, bottom, start, end))
    # Of many areas, one over the other, none could be seen.
    opacity = custom["fillOpacity"] / 100 * (2.5 if piles else min(1, 3 / len(all_series)))
    for each, drawn, side in zip(all_series, pieces, sides):
        for piece in drawn:
            places = [(left + (right - left) * (at - start) / (end - start), bottom if lower is None else axes[side].place(lower), axes[side].place(upper))
                      for at, lower, upper in piece]
            out.append(area(places, each["colour"], opacity, custom["lineWidth"] + 0.3))
    return "".join(out) + key


def area(places, fill, opacity, thick):
    """A line with what is below it: places have an abscissa, a lower and an upper ordinate."""
    if len(places) == 1:
        return f'<circle cx="{places[0][0]:.1f}" cy="{places[0][2]:.1f}" r="1.5" fill="{fill}"/>'
    upper = " ".join(f"{at:.1f},{high:.1f}" for at, _, high in places)
    lower = " ".join(f"{at:.1f},{low:.1f}" for at, low, _ in reversed(places))
    return (f'<polygon points="{upper} {lower}" fill="{fill}" fill-opacity="{opacity:.3f}"/>'
            f'<polyline points="{upper}" fill="none" stroke="{fill}" stroke-width="{thick}"/>')


def states_of(points, step):
    """Values with the time from which to which they lasted: a value counts until the next one."""
    spans = []
    for at, value in points:
        if spans and spans[-1][0] == value and spans[-1][2] >= at:
            spans[-1][2] = at + step
        else:
            spans.append([value, at, at + step])
    return spans


def state_timeline(panel, all_series, box, said, notes):
    x, y, width, height = box
    defaults = panel["fieldConfig"]["defaults"]
    start, end, step = said["start"], said["end"], said["interval"]
    states = {}
    left = x + 12 + min(width * 0.3, max(breadth(each["name"], 10) for each in all_series))
    right, top, bottom = x + width - 12, y + 8, y + height - 42
    row = (bottom - top) / len(all_series)
    out = [clock(left, right - left, top, bottom, start, end)]
    for number, each in enumerate(all_series):
        at = top + number * row
        out.append(text(left - 6, at + row / 2 + 3.5, clipped(each["name"], 10, width * 0.3), 10, SOFT, "end"))
        for value, first, last in states_of(each["points"], step):
            words, fill = mapped(value, defaults) or (shown(value, defaults["unit"]), PALETTE[0])
            states[words] = fill
            begin, stop = (left + (right - left) * (min(max(when, start), end) - start) / (end - start) for when in (first, last))
            out.append(rectangle(begin, at + row * 0.1, stop - begin, row * 0.8, fill, opacity=0.75))
    out.append(marked(*notes, left, right - left, top, bottom, start, end))
    return "".join(out) + legend(x + 10, y + height - 6, width - 20, list(states.items()))[0]


def stat(panel, all_series, box, said, _):
    x, y, width, height = box
    defaults, out = panel["fieldConfig"]["defaults"], []
    part = width / len(all_series)
    for number, each in enumerate(all_series):
        value = next((value for _, value in reversed(each["points"]) if value is not None), None)
        words, fill = mapped(value, defaults) or (shown(value, defaults["unit"], defaults, now=said["end"]), colour(value, defaults))
        middle = x + part * (number + 0.5)
        size = min(34, part * 0.85 / max(1, len(words)) / 0.54)
        if panel["options"]["textMode"] == "value_and_name":
            out.append(text(middle, y + 22, each["name"], 13, fill, "middle"))
            out.append(text(middle, y + height / 2 + 28, words, size, fill, "middle", "600"))
        else:
            out.append(text(middle, y + height / 2 + size * 0.2, words, size, fill, "middle", "600"))
    return "".join(out)


def table(panel, all_series, box, said, _):
    x, y, width, height = box
    defaults = panel["fieldConfig"]["defaults"]
    columns = sorted({label for each in all_series for label in each["labels"] if label != "__name__"}) + ["Value"]
    part, out, renamed = (width - 24) / len(columns), [], {}
    for change in panel.get("transformations", []):
        renamed |= change["options"].get("renameByName", {})
    for number, column in enumerate(columns):
        last = column == "Value"
        at = x + 12 + part * number + (part if last else 0)
        out.append(text(at, y + 16, renamed.get(column, column), 10.5, NAMED["blue"], "end" if last else "start", "600"))
        for line, each in enumerate(all_series[:int((height - 24) / 22)]):
            words = shown(each["points"][-1][1], defaults["unit"], defaults) if last else each["labels"].get(column, "")
            below = y + 24 + 22 * line
            out.append(text(at, below + 15, clipped(words, 11, part), 11, INK, "end" if last else "start"))
            if number == 0:
                out.append(f'<path d="M{x + 12} {below:.1f}H{x + width - 12}" stroke="{LINE}"/>')
    return "".join(out)


KINDS = {"stat": stat, "timeseries": time_series, "state-timeline": state_timeline, "table": table}


def coloured(panel, figures):
    """The series of a panel that have a value, with the names and colours of its legend."""
    out = []
    for asked in figures:
        form = next(target["legendFormat"] for target in panel["targets"] if target["refId"] == asked["target"])
        for each in asked["series"]:
            if any(value is not None for _, value in each["points"]) or panel["type"] == "stat":
                out.append({**each, "name": named(each["labels"], form), "colour": PALETTE[len(out) % len(PALETTE)]})
    return out


def page(name, board, said):
    """The page of one dashboard, its width and height, and the titles of panels without data."""
    figures, empty = said["boards"][name], []
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    width, height = WIDTH, HEAD + rows * CELL + FOOT
    span = [datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S") for at in (said["start"], said["end"])]
    chosen = " · ".join(f"{variable['label']}: {'Prometheus' if variable['type'] == 'datasource' else 'All'}" for variable in board["templating"]["list"])
    out = [text(MARGIN, 26, board["title"], 17, INK, weight="600"), text(MARGIN, 48, chosen, 11, SOFT),
           text(width - MARGIN, 26, f"{span[0]} to {span[1][11:]} UTC", 11, SOFT, "end")]
    notes = board["annotations"]["list"]
    if notes:
        out.append(text(width - MARGIN, 48, f"┆ {', '.join(note['name'] for note in notes)}", 11, NAMED["blue"], "end"))
    every = max([int(note["step"].rstrip("s")) for note in notes], default=0)
    for panel in board["panels"]:
        grid = panel["gridPos"]
        x, y = MARGIN + grid["x"] * COLUMN, HEAD + grid["y"] * CELL
        wide, high = grid["w"] * COLUMN - GAP, grid["h"] * CELL - GAP
        if panel["type"] == "row":
            out.append(text(x + 2, y + 17, f"⌄ {panel['title']}", 13, INK, weight="600"))
            continue
        if panel["type"] not in KINDS:
            raise SystemExit(f"{name}: {panel['title']}: a panel of the type `{panel['type']}` cannot be drawn")
        out.append(rectangle(x, y, wide, high, PAPER, LINE, 3) + text(x + 10, y + 19, clipped(panel["title"], 11.5, wide - 8), 12, INK, weight="600"))
        all_series = coloured(panel, figures["panels"].get(str(panel["id"]), []))
        box = (x, y + 26, wide, high - 26)
        others = {target["datasource"]["type"] for target in panel["targets"]} - {"prometheus"}
        if others:
            out.append(text(x + wide / 2, y + high / 2 + 8, f"asks {', '.join(sorted(others))}, which is not drawn", 12, SOFT, "middle"))
        elif all_series:
            out.append(KINDS[panel["type"]](panel, all_series, box, said, (figures["notes"], every)))
        else:
            empty.append(panel["title"])
            words = panel["fieldConfig"]["defaults"].get("noValue", "-") if panel["type"] in ("stat", "table") else "No data"
            out.append(text(x + wide / 2, y + high / 2 + 8, words, 14, SOFT, "middle"))
    out.append(text(MARGIN, height - 13, f"A drawing of deploy/grafana/{name}.json by deploy/grafana/draw, with figures that Prometheus read from a "
                    "gateway with scripted servers and callers. It is not Grafana's own rendering.", 11, SOFT))
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'font-family="Liberation Sans, Helvetica, Arial, sans-serif">{rectangle(0, 0, width, height, GROUND)}{"".join(out)}</svg>')
    return f'<!doctype html><meta charset="utf-8"><style>body{{margin:0}}svg{{display:block}}</style>{svg}', width, height, empty


# ---- PNG


def unfiltered(data, height, line, pixel):
    """The lines of a PNG without its filters (PNG, section 9)."""
    lines, above = [], bytearray(line)
    for number in range(height):
        at = number * (line + 1)
        kind, row = data[at], bytearray(data[at + 1:at + 1 + line])
        if kind == 1:
            for i in range(pixel, line):
                row[i] = (row[i] + row[i - pixel]) & 255
        elif kind == 2:
            row = bytearray((a + b) & 255 for a, b in zip(row, above))
        elif kind == 3:
            for i in range(line):
                row[i] = (row[i] + ((row[i - pixel] if i >= pixel else 0) + above[i]) // 2) & 255
        elif kind == 4:
            for i in range(line):
                left, corner = (row[i - pixel], above[i - pixel]) if i >= pixel else (0, 0)
                far, near, off = abs(above[i] - corner), abs(left - corner), abs(left + above[i] - 2 * corner)
                row[i] = (row[i] + (left if far <= near and far <= off else above[i] if near <= off else corner)) & 255
        lines.append(bytes(row))
        above = row
    return lines


def smaller(png):
    """The same picture with a palette: our own colours and the commonest of the others, and for each other one the nearest of them."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, form = struct.unpack(">IIBB", png[at + 8:at + 18])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        at += size + 12
    pixel = {2: 3, 6: 4}[form]
    if depth != 8:
        raise SystemExit(f"a PNG of {depth} bits")
    rows = [[row[i:i + 3] for i in range(0, len(row), pixel)] for row in unfiltered(zlib.decompress(data), height, width * pixel, pixel)]
    counts = collections.Counter(itertools.chain.from_iterable(rows))
    ours = [bytes.fromhex(shade[1:]) for shade in {*PALETTE, *NAMED.values(), INK, SOFT, LINE, PAPER, GROUND}]
    palette = ours + [shade for shade, _ in counts.most_common(255) if shade not in ours][:255 - len(ours)]
    index = {shade: number for number, shade in enumerate(palette)}
    for shade in counts:
        if shade not in index:
            index[shade] = min(range(len(palette)), key=lambda number: sum((a - b) ** 2 for a, b in zip(shade, palette[number])))
    packed = zlib.compress(b"".join(b"\0" + bytes(index[shade] for shade in row) for row in rows), 9)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)), (b"PLTE", b"".join(palette)), (b"IDAT", packed), (b"IEND", b"")]
    return png[:8] + b"".join(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)
