// Reads trajectory files (docs/cli.md): JSON lines of header, starts and steps.

const SCHEMA = 1;

/** Header, and trajectories in order: {start, steps, won, error}. Throws an Error that names the line. */
export async function readTrajectories(file, progress = () => {}) {
  const content = { header: null, trajectories: new Map() };
  let number = 0;
  let read = 0;
  let rest = "";
  const take = (line) => {
    number += 1;
    if (line.trim()) addLine(content, line, number);
  };
  for await (const piece of pieces(file.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })))) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    lines.forEach(take);
    read += piece.length;
    progress(read / file.size);
  }
  take(rest);
  if (content.header === null) throw new Error("the file is empty");
  return { header: content.header, trajectories: [...content.trajectories.values()].map(finished) };
}

async function* pieces(stream) {
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
}

function addLine(content, line, number) {
  let row;
  try {
    row = JSON.parse(line);
  } catch (error) {
    throw new Error(`line ${number} is no JSON (${error.message})`);
  }
  if (content.header === null) {
    if (row?.record !== "header" || row.schema !== SCHEMA) {
      throw new Error(`line 1 is no header of schema ${SCHEMA}: this is no trajectory file`);
    }
    content.header = row;
    return;
  }
  const add = ADDED[row?.record];
  if (add === undefined || row.trajectory === undefined) throw new Error(`line ${number} is neither a start nor a step`);
  add(content.trajectories, row, number);
}

const ADDED = {
  start: (found, row) => found.set(row.trajectory, { start: row, steps: [] }),
  step: (found, row, number) => {
    const trajectory = found.get(row.trajectory);
    if (trajectory === undefined) throw new Error(`line ${number}: trajectory ${row.trajectory} has no start`);
    trajectory.steps.push(row);
  },
};

function finished(trajectory) {
  const last = trajectory.steps.at(-1);
  return {
    ...trajectory,
    won: Boolean(last?.won),
    error: trajectory.steps.some((step) => step.error !== null && step.error !== undefined),
    total: trajectory.steps.reduce((sum, step) => sum + (step.reward ?? 0), 0),
  };
}

export const OUTCOMES = {
  all: () => true,
  won: (trajectory) => trajectory.won,
  lost: (trajectory) => !trajectory.won,
  error: (trajectory) => trajectory.error,
};
