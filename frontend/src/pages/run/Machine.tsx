// What the machine did while a run was there: a small line for each of its numbers, over time.

import { showOnly } from '../../data/runs'
import { useTagsOf } from '../../data/tags'
import type { Run, Scalars } from '../../data/types'
import { update } from '../../state/state'
import { duration, named, number } from '../../views/format'
import { useSeries } from '../charts/series'

const PREFIX = 'system.'
const POINTS = 120
const [WIDE, HIGH] = [120, 24]

export function Machine({ run }: { run: Run }) {
  const { values, problem, loading } = useTagsOf([run.key])
  const tags = (values.get(run.key) ?? []).filter(({ tag, type }) => type === 'scalar' && tag.startsWith(PREFIX)).map(({ name }) => name)
  const entries = useSeries(tags.map((tag) => ({ run: run.key, tag, x: 'relative', points: POINTS })))
  if (tags.length === 0) return <p class="muted">{problem ?? (loading ? 'Loading …' : "Not recorded: a run with files and pip install 'sightglass[system]' has it.")}</p>
  return (
    <>
      <table class="machine">
        <thead>
          <tr>
            <th />
            <th>over time</th>
            <th>last</th>
            <th>highest</th>
          </tr>
        </thead>
        <tbody>
          {entries.map(({ request, data, error }) => (
            <Row key={request.tag} tag={request.tag} data={data.value} problem={error.value} />
          ))}
        </tbody>
      </table>
      <button type="button" class="text-button" onClick={() => (showOnly([run.key]), update({ tags: '^system\\.' }, { page: 'charts' }))}>
        Charts of the machine
      </button>
    </>
  )
}

function Row({ tag, data, problem }: { tag: string; data: Scalars | null; problem: string | null }) {
  const [name, unit] = named(tag.slice(PREFIX.length))
  const [last, highest] = data ? [data.y.at(-1) ?? NaN, highestOf(data.y)] : [NaN, NaN]
  const told = (one: number) => (Number.isNaN(one) ? '' : `${number(one, 3)} ${unit}`)
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{problem ?? (data && data.x.length > 0 && <Small data={data} top={unit === '%' ? Math.max(100, highest) : highest} />)}</td>
      <td>{told(last)}</td>
      <td>{told(highest)}</td>
    </tr>
  )
}

/** A line from 0 to `top`. */
function Small({ data: { x, y }, top }: { data: Scalars; top: number }) {
  const [from, to] = [x[0]!, x.at(-1)!]
  const at = (i: number) => `${to > from ? (((x[i]! - from) / (to - from)) * WIDE).toFixed(1) : WIDE},${(HIGH - 1 - (top > 0 ? y[i]! / top : 0) * (HIGH - 2)).toFixed(1)}`
  const points = Array.from(y, (_, i) => i).filter((i) => Number.isFinite(y[i]!))
  return (
    <svg viewBox={`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" role="img" aria-label={`Over ${duration(to - from)}`}>
      <polyline points={points.map(at).join(' ')} />
    </svg>
  )
}

const highestOf = (y: Float64Array): number => y.reduce((most, one) => (one > most || Number.isNaN(most) ? one : most), NaN)
