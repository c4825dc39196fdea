import { useEffect, useMemo } from 'preact/hooks'
import { release, want, type Entry } from '../../data/scalars'
import type { ScalarsRequest } from '../../data/types'

/** Hold some series for as long as a part of the page is there. */
export function useSeries(requests: ScalarsRequest[]): Entry[] {
  const held = useMemo(() => requests.map(want), [JSON.stringify(requests)])
  useEffect(() => () => held.forEach(release), [held])
  return held
}

/** The number of points to request for a series: fewer if more lines share the chart. */
export function pointsFor(n_runs: number, large: boolean): number {
  const points = n_runs <= 12 ? 400 : n_runs <= 40 ? 200 : 100
  return large ? 3 * points : points
}
