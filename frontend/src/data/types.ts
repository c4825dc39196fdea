// The server's replies as types. Numbers that JSON lacks are the strings "NaN", "Infinity", "-Infinity".

export type RunState =
  'running' | 'paused' | 'stopping' | 'writing' | 'ended' | 'failed' | 'terminated' | 'died' | 'unknown'

export interface Run {
  key: string
  id: string
  /** What it is called: what people named it, or its own name. */
  name: string
  /** The name that its program gave it, by which a live run is found. */
  own_name: string
  state: RunState
  live: boolean
  /** The server's role on the hub over which it reaches the run; empty for a run of its machine. */
  hub_role: '' | 'viewer' | 'controller'
  source: 'sightglass' | 'mindspore' | 'tensorboard'
  /** Its folder of those that are served, or its project on the hub; else empty. */
  project: string
  directory: string
  host: string
  started: number | null
  ended: number | null
  version: string
  described: number
  last_step: number | null
  config: Record<string, unknown>
  /** The tags that its files call its metrics. */
  metrics: string[]
  problem: string | null
  annotations: Annotations
}

/** What people wrote down about a run. */
export interface Annotations {
  name: string
  labels: string[]
  /** In Markdown. */
  notes: string
  archived: boolean
  baseline: boolean
  /** When it was put into the trash, in seconds since the Unix epoch, or 0. */
  deleted: number
}

export interface Observable {
  type: string
  example?: string
  /** The step of the event that the example is from. */
  step?: number | null
  fields: Record<string, string>
}

export interface EventInfo {
  origin: string
  n_events: number
  snapshot: boolean
  note?: string
  observables: Record<string, Observable>
}

export interface ControlInfo {
  type: string
  value: unknown
  min: number | null
  max: number | null
  choices: unknown[] | null
  where: string
}

export interface StreamInfo {
  stream: number
  query: string
  tag: string
  clients: string[]
  n_records: number
  n_events: number
  n_skipped: number
  n_dropped: number
  n_unpaired?: number
  n_errors: number
  last_error: string
  stride: number
  spent_s: number
  recorded?: boolean
}

export interface Description {
  pid: number
  state: string
  wall_time: number
  started: number
  events: Record<string, EventInfo>
  controls: Record<string, ControlInfo>
  actions: Record<string, { doc: string; where: string }>
  functions: Record<string, string>
  streams: StreamInfo[]
  n_clients: number
  n_pending_commands: number
  facts: ProgramFacts
}

/** What a run tells about its program, as far as it is known. */
export interface ProgramFacts {
  command?: string[]
  folder?: string
  python?: string
  system?: string
  n_cpus?: number
  packages?: Record<string, string>
  git?: { commit: string; branch: string; dirty: boolean }
  environment?: Record<string, string>
}

export interface HistoryEntry {
  kind: string
  name?: string
  value?: unknown
  step?: number | null
  wall_time?: number | null
  event?: string
  old?: unknown
  result?: unknown
  error?: string
  client?: string
}

export interface RunDetail extends Run {
  description: Description | null
  history: HistoryEntry[]
  streams: StreamInfo[]
  /** How many values in its files cannot be shown, by what they are. */
  not_shown: Record<string, number>
}

export type TagType = 'scalar' | 'tensor' | 'histogram' | 'image' | 'figure' | 'audio' | 'table' | 'text'

export interface Tag {
  tag: string
  /** What requests take as `tag`: the tag, with the kind of its values where a file may have several. */
  name: string
  type: TagType
  /** The dtype of its latest array as it was logged, or empty. */
  dtype: string
  /** The dtype that the file has instead, or empty. */
  stored_as: string
  /** That of its latest array, such as `[2, 3]`, or empty. */
  shape: string
  n: number
  first_step: number | null
  last_step: number | null
  query?: string | null
}

export interface Session {
  role: 'controller' | 'viewer'
  name: string
  version: string
  directories: string[]
}

export interface FunctionInfo {
  name: string
  signature: string
  doc: string
  kind: 'function' | 'reducer'
}

export const X_KINDS = ['step', 'relative', 'wall'] as const
export type XKind = (typeof X_KINDS)[number]

export interface ScalarsRequest {
  run: string
  /** A tag, or an expression over tags. */
  tag: string
  /** An `XKind`, or the name of a step track or a series. */
  x: string
  from?: number
  to?: number
  points: number
  /** The cursor of an earlier reply: only what came later. */
  since?: string
}

/** A part of a line that is drawn by itself. */
export interface ScalarsPart {
  start: number
  end: number
  alpha: number
  /** The number of its pass, counted from 0. */
  pass: number
}

/** One series, thinned as requested: the points stand for `n` recorded ones. */
export interface Scalars {
  n: number
  thinned: boolean
  x: Float64Array
  y: Float64Array
  wall: Float64Array
  step: Float64Array
  /** The mean of all points between each one and the one before, for smoothing; NaN where they are joined straight. */
  mean?: Float64Array | undefined
  /** Where x increases, the newest last: between them a run began again, or its steps or its clock went back. */
  parts: ScalarsPart[]
  /** The digits of integers beyond 2^53, of which `y` has the nearest numbers, by their places among the points. */
  integers?: ReadonlyMap<number, string> | undefined
  /** Where on x the run began again. */
  restarts: number[]
  /** The names of the further step tracks of its records. */
  tracks: string[]
  cursor: string
  /** Whether these are only the points that came after the cursor of the request. */
  continued: boolean
  /** How many records of a statistic of tensors are still to be read: it is asked again for them. */
  n_pending: number
}
