// Stretches of y that mean something, behind the lines: good, warning, critical, with their names at the edge.
import { colour } from "../theme.js";

const TONES = { good: ["--good", 0.08], note: ["--muted", 0.07], warning: ["--warn", 0.1], critical: ["--bad", 0.09] };

// A function that draws the bands on uPlot's canvas.
export function bandsUnder(bands) {
  if (!bands?.length) return undefined;
  return (u) => {
    const ctx = u.ctx,
      { left, top, width, height } = u.bbox,
      ratio = devicePixelRatio || 1;
    const bottom = top + height;
    ctx.save();
    ctx.font = `${10 * ratio}px Inter, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    for (const band of bands) {
      const high = band.to === null ? top : clamp(u.valToPos(band.to, "y", true), top, bottom);
      const low = band.from === null ? bottom : clamp(u.valToPos(band.from, "y", true), top, bottom);
      if (!(low - high > 1)) continue;
      const [tone, alpha] = TONES[band.level] || TONES.note;
      ctx.fillStyle = colour(tone);
      ctx.globalAlpha = alpha;
      ctx.fillRect(left, high, width, low - high);
      ctx.globalAlpha = 0.35;
      if (band.from !== null && low < bottom) ctx.fillRect(left, low - ratio / 2, width, ratio);
      ctx.globalAlpha = 0.9;
      if (band.label && low - high > 14 * ratio) ctx.fillText(band.label, left + width - 5 * ratio, high + 3 * ratio);
    }
    ctx.restore();
  };
}

const clamp = (value, low, high) => (Number.isFinite(value) ? Math.min(Math.max(value, low), high) : high);
