// The server's replies as types: those of its OpenAPI document, and what the page makes of the others.

import type { components } from './schemas'

type Schemas = components['schemas']

export type Run = Schemas['RunSummary']
export type RunState = Run['state']
export type Annotations = Schemas['Annotations']
export type RunDetail = Schemas['RunDetail']
export type Finding = Schemas['Finding']
export type Description = Schemas['Description']
export type EventInfo = Schemas['EventInfo']
export type Observable = Schemas['ObservableInfo']
export type ControlInfo = Schemas['ControlInfo']
export type ActionInfo = Schemas['ActionInfo']
export type StreamInfo = Schemas['StreamInfo']
export type Acknowledgement = Schemas['Acknowledgement']
export type RunStacks = Schemas['RunStacks']
export type RunTexts = Schemas['RunTexts']
export type Moment = Schemas['RunMoment']
export type HistoryEntry = Schemas['HistoryEntry']
export type Tag = Schemas['Tag']
export type TagType = Tag['type']
export type Session = Schemas['SessionInfo']
export type Completion = Schemas['Completion']
export type Completions = Schemas['Completions']

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
