// The colours of loads: the scale `cividis`, which people with each kind of colour vision read
// alike, from nothing used to full.

const POINTS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

/**
 * Return the colour of a load.
 * @param {number} load from 0 to 1
 */
export function loadColour(load) {
  const at = Math.min(1, Math.max(0, load)) * (POINTS.length - 1);
  const low = Math.floor(at);
  const high = Math.min(POINTS.length - 1, low + 1);
  const mixed = POINTS[low].map((from, index) => Math.round(from + (POINTS[high][index] - from) * (at - low)));
  return `rgb(${mixed.join(" ")})`;
}

/** Colours of lines: Okabe and Ito's, for light and dark; with dashes where they repeat. */
const LINES = {
  light: ["#0072b2", "#d55e00", "#007a5a", "#b0488a", "#8a6d00", "#2a86b8", "#1f1f1f"],
  dark: ["#56b4e9", "#f08a3c", "#2fbf94", "#e39cc6", "#e6c229", "#8ab8ff", "#e8e8e8"],
};
const DASHES = [[], [7, 4], [2, 3]];

/**
 * Return how line `index` is drawn.
 * @param {number} index
 * @param {boolean} isDark
 */
export function lineStyle(index, isDark) {
  const colours = isDark ? LINES.dark : LINES.light;
  return { stroke: colours[index % colours.length], dash: DASHES[Math.floor(index / colours.length) % DASHES.length] };
}
