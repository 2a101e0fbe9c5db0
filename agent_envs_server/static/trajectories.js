// Reads trajectory files (docs/trajectories.md): JSON lines of a header, starts and steps. Of the steps only the
// place in the file and a few figures are kept, so a file may be larger than the memory.

const SCHEMA = 1;
const LONGEST = 64 << 20; // bytes of a line
const NEWLINE = 10;

/**
 * Header and trajectories in order: {start, steps, won, error, total}; stepRow() reads a step.
 * `cut` is the number of a last line that is not whole, or 0. Throws an Error that names the line.
 */
export async function readTrajectories(file, progress = () => {}) {
  const found = { header: null, trajectories: new Map(), cut: 0 };
  let number = 0;
  for await (const { bytes, from, whole } of lines(file.stream(), () => number + 1)) {
    number += 1;
    try {
      addLine(found, bytes, from, number);
    } catch (error) {
      if (whole || found.header === null) throw error;
      found.cut = number; // a run still writes this file, or was stopped
    }
    progress(from / file.size);
  }
  if (found.header === null) throw new Error("the file is empty");
  return { header: found.header, cut: found.cut, trajectories: [...found.trajectories.values()].map(finished) };
}

/** The row of a step, read from its file again. */
export async function stepRow(file, { from, to }) {
  return JSON.parse(await file.slice(from, to).text());
}

/** Lines as bytes, and where in the file each begins. */
async function* lines(stream, number) {
  const reader = stream.getReader();
  let parts = [];
  let length = 0;
  let from = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    let begin = 0;
    for (let end = next.value.indexOf(NEWLINE); end >= 0; end = next.value.indexOf(NEWLINE, begin)) {
      parts.push(next.value.subarray(begin, end));
      length += end - begin;
      yield { bytes: joined(parts, length), from, whole: true };
      from += length + 1;
      begin = end + 1;
      parts = [];
      length = 0;
    }
    parts.push(next.value.subarray(begin));
    length += next.value.length - begin;
    if (length > LONGEST) throw new Error(`line ${number()} is longer than 64 MiB: this is no trajectory file`);
  }
  if (length > 0) yield { bytes: joined(parts, length), from, whole: false };
}

function joined(parts, length) {
  if (parts.length === 1) return parts[0];
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function addLine(found, bytes, from, number) {
  const text = decoded(bytes, number);
  if (!text.trim()) return;
  const row = parsed(text, number);
  if (found.header === null) {
    if (row?.record !== "header") throw new Error(`line ${number} is no header: this is no trajectory file`);
    if (row.schema !== SCHEMA) throw new Error(`schema ${row.schema}; this page reads schema ${SCHEMA}`);
    found.header = row;
    return;
  }
  const add = ADDED.get(row?.record);
  if (add === undefined || row.trajectory === undefined) throw new Error(`line ${number} is neither a start nor a step`);
  add(found.trajectories, row, number, { from, to: from + bytes.length, text });
}

/** A seed as it is written: a JavaScript number does not hold all of its digits. */
function digits(seed, text) {
  return Number.isSafeInteger(seed) ? seed : /"seed":\s*(\d+)/.exec(text)?.[1] ?? seed;
}

function decoded(bytes, number) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new Error(`line ${number} is no UTF-8 text: this is no trajectory file`, { cause: error });
  }
}

function parsed(text, number) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`line ${number} is no JSON (${error.message})`, { cause: error });
  }
}

const ADDED = new Map([
  ["start", (found, row, number, { text }) => {
    if (found.has(row.trajectory)) throw new Error(`line ${number}: trajectory ${row.trajectory} starts twice`);
    found.set(row.trajectory, { start: { ...row, seed: digits(row.seed, text) }, steps: [] });
  }],
  ["step", (found, row, number, { from, to }) => {
    const trajectory = found.get(row.trajectory);
    if (trajectory === undefined) throw new Error(`line ${number}: trajectory ${row.trajectory} has no start`);
    const reward = typeof row.reward === "number" ? row.reward : 0;
    trajectory.steps.push({ from, to, reward, won: Boolean(row.won), failed: Boolean(row.error) });
  }],
]);

function finished({ start, steps }) {
  return {
    start,
    steps,
    won: Boolean(steps.at(-1)?.won),
    error: steps.some((step) => step.failed),
    total: steps.reduce((sum, step) => sum + step.reward, 0),
  };
}

export const OUTCOMES = {
  all: () => true,
  won: (trajectory) => trajectory.won,
  lost: (trajectory) => !trajectory.won,
  error: (trajectory) => trajectory.error,
};
