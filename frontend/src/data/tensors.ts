// Tensors and histograms: slices, statistics and searches, from the server.

import { useEffect, useState } from 'preact/hooks'
import type { Cell } from '../views/cells'
import { useFetched, type Fetched } from './fetched'
import { get, getBytes, runPath } from './api'
import { readNpy, type Floats } from './npy'
import { useVersion, versionOf } from './growth'
import { byKey } from './runs'
import type { Window } from './tiles'

export type Measure = 'difference' | 'relative' | 'close'
export type When = 'same' | 'previous' | 'first'

/** What a tensor is compared with, and how. */
export interface Other {
  run: string
  tag: string
  step: number | When
  measure: Measure
  rtol: number
  atol: number
}

/** A slice of a tensor, or of its comparison with another. */
export interface Part {
  run: string
  tag: string
  step: number
  slice: string
  /** Make a slice fit that was written for another shape. */
  fit: boolean
  other: Other | null
}

export interface Statistics {
  n: number
  min: Cell
  max: Cell
  mean: Cell
  std: Cell
  norm: Cell
  n_zero: number
  n_negative: number
  n_positive: number
  n_nan: number
  n_posinf: number
  n_neginf: number
}

export interface Table {
  shape: number[]
  dtype: string
  slice: string
  step: number
  n_rows: number | null
  n_columns: number | null
  rows: number[]
  columns: number[]
  values: Cell | Cell[] | Cell[][]
  statistics: { slice: Statistics; whole: Statistics | null } | null
}

export interface DamagedStep {
  step: number
  problem: string
}

export interface Steps {
  steps: number[]
  wall_times: number[]
  damaged: DamagedStep[]
}

export interface HistogramSeries {
  steps: number[]
  wall_times: number[]
  edges: number[][]
  counts: number[][]
  n_nan: number[]
  n_posinf: number[]
  n_neginf: number[]
  percentiles: (number | string)[][]
}

export interface Found {
  found: boolean
  step: number | null
  index: number[]
  value: Cell
}

export type Place = 'nan' | 'inf' | 'min' | 'max' | 'absmax' | 'zero'

type Options = Record<string, string | number | undefined>

const comparedWith = (run: string, tag: string, other: Other | null): Options =>
  other
    ? {
        other_step: other.step,
        other_run: other.run === run ? undefined : other.run,
        other_tag: other.tag === tag ? undefined : other.tag,
        measure: other.measure,
        ...(other.measure === 'close' && { rtol: other.rtol, atol: other.atol }),
      }
    : {}

const ofPart = ({ run, tag, step, slice, fit, other }: Part, options: Options): [string, Options] => [
  runPath(run, '/tensor'),
  { tag, step, slice, fit: fit ? 'true' : undefined, ...comparedWith(run, tag, other), ...options },
]

const windowText = ([from, end]: Window): string => `${from}:${end}`

export function fetchWindow(part: Part, rows: Window, columns: Window, abort?: AbortSignal): Promise<Table> {
  const [path, query] = ofPart(part, { rows: windowText(rows), columns: windowText(columns), statistics: 'false' })
  return get<Table>(path, query, abort)
}

export async function fetchStatistics(part: Part, abort: AbortSignal): Promise<NonNullable<Table['statistics']>> {
  const [path, query] = ofPart(part, { rows: '0:0', columns: '0:0' })
  return (await get<Table>(path, query, abort)).statistics!
}

export function fetchFile(part: Part, format: 'csv' | 'npy'): Promise<Blob> {
  return getBytes(...ofPart(part, { format }))
}

/** The part as a picture of at most `thin` rows and columns, each value the one farthest from zero of its block. */
export async function fetchPicture(part: Part, thin: number): Promise<Floats> {
  return readNpy(await (await getBytes(...ofPart(part, { format: 'npy', thin }))).arrayBuffer())
}

/** Find a value in a tensor or a comparison, at one step or, without a step, at all. */
export function fetchFound({ run, tag, step, other }: { run: string; tag: string; step?: number; other: Other | null }, what: Place): Promise<Found> {
  return get<Found>(runPath(run, '/find'), { tag, what, step, ...comparedWith(run, tag, other) })
}

export function useSteps(run: string, tag: string): Fetched<Steps> {
  const key = run && tag ? `${run} ${tag}` : null
  return useFetched(key, (abort) => get<Steps>(runPath(run, '/steps'), { tag }, abort), useVersion(run))
}

export interface HistogramOptions {
  /** By default as many as fit the number of values. */
  bins?: number
  scale: 'linear' | 'symlog'
  /** Where values are counted that squeeze all others; by default in bins that span them. */
  outliers?: 'inside' | 'edge'
  from?: number
  to?: number
}

/** The histograms of a tag with `n_steps` steps; fetched again when it has grown by a fiftieth. */
export function useHistograms(run: string, tag: string, other: Other | null, options: HistogramOptions, n_steps: number): Fetched<HistogramSeries> {
  const coarse = Math.ceil(n_steps / 50)
  const key = run && tag ? JSON.stringify([run, tag, other, options, Math.floor(n_steps / coarse), coarse]) : null
  return useFetched(key, (abort) => get<HistogramSeries>(runPath(run, '/histograms'), { tag, ...comparedWith(run, tag, other), ...options, limit: 1_000 }, abort))
}

/** The histograms of several tensors over their steps, each with its place. */
export function useHistogramsOf<Place extends { run: string; tag: string; n_steps: number }>(places: readonly Place[], options: HistogramOptions): Fetched<{ place: Place; of: HistogramSeries }[]> {
  const ask = (abort: AbortSignal) =>
    Promise.all(places.map(async (place) => ({ place, of: await get<HistogramSeries>(runPath(place.run, '/histograms'), { tag: place.tag, ...options, limit: 1_000 }, abort) })))
  return useFetched(JSON.stringify([places.map(({ run, tag, n_steps }) => [run, tag, n_steps]), options]), ask)
}

/** Statistics at all steps; those of damaged records are left out. */
export interface StepStatistics {
  steps: number[]
  wall_times: number[]
  statistics: Record<string, Cell[]>
  n_pending: number
}

/** The statistics of several tensors, each with its place; asked again until all of them are read. */
export function useStatistics<Place extends { run: string; tag: string }>(places: readonly Place[]): Fetched<{ place: Place; of: StepStatistics }[]> {
  const [n_asked, setAsked] = useState(0)
  const versions = [useVersion(places[0]!.run), ...places.slice(1).map(({ run }) => versionOf(byKey.value.get(run)))].join(' ')
  const ask = (abort: AbortSignal) => Promise.all(places.map(async (place) => ({ place, of: await get<StepStatistics>(runPath(place.run, '/statistics'), { tag: place.tag }, abort) })))
  const found = useFetched(JSON.stringify(places.map(({ run, tag }) => [run, tag])), ask, `${versions} ${n_asked}`)
  useEffect(() => {
    if (found.value?.some(({ of }) => of.n_pending)) setAsked((n) => n + 1)
  }, [found.value])
  return found
}

/** A tensor or histograms at a step, and one of its statistics over the steps. */
export interface TensorOverview {
  tag: string
  /** As in `Tag`. */
  name: string
  type: 'tensor' | 'histogram'
  shape: string
  n_steps: number
  /** Null while it is not read, if it is damaged, and before its first record. */
  step: number | null
  statistics: Statistics | null
  bars: number[]
  curve: Cell[]
}

export interface Overview {
  tensors: TensorOverview[]
  steps: number[]
  n_records: number
  n_pending: number
}

/** All tensors of a run at a step; asked again until all of it is read. */
export function useOverview(run: string, step: number | null, curve: string): Fetched<Overview> {
  const [n_asked, setAsked] = useState(0)
  const found = useFetched(run ? JSON.stringify([run, step, curve]) : null, (abort) => get<Overview>(runPath(run, '/overview'), { step: step ?? undefined, curve }, abort), `${useVersion(run)} ${n_asked}`)
  useEffect(() => {
    if (found.value?.n_pending) setAsked((n) => n + 1)
  }, [found.value])
  return found
}
