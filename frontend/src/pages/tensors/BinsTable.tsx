// One histogram as a table: its bins and how many values are in each.

import { useHistograms } from '../../data/tensors'
import { at } from '../../state/state'
import { number } from '../../views/format'

const PERCENTS = ['5 %', '25 %', '50 %', '75 %', '95 %']

export function BinsTable({ run, tag, step }: { run: string; tag: string; step: number }) {
  const found = useHistograms(run, tag, null, { bins: at.bins.value || undefined, scale: at.symlog.value ? 'symlog' : 'linear', from: step, to: step }, 1)
  if (found.problem) return <p class="banner">{found.problem}</p>
  const reply = found.value
  const counts = reply?.counts[0]
  if (!reply || !counts) return <div class="panel-wait" role="status" aria-label="Counting" />
  const edges = reply.edges[0]!
  const top = Math.max(1, ...counts)
  const odd = [
    [reply.n_nan[0]!, 'NaN'],
    [reply.n_posinf[0]!, '+Inf'],
    [reply.n_neginf[0]!, '−Inf'],
  ] as const
  const total = counts.reduce((a, b) => a + b, 0) + odd.reduce((a, [n]) => a + n, 0)
  return (
    <div class="bins" tabIndex={0} role="region" aria-label={`Histogram of ${tag} at step ${step}`}>
      <p class="bins-facts">
        <b>{total.toLocaleString('en')}</b> values
        {odd.map(([n, name]) => n > 0 && <span key={name}>{` · ${n.toLocaleString('en')} ${name}`}</span>)}
        {reply.percentiles[0]!.map((value, i) => (
          <span key={i} class="muted">
            {` · ${PERCENTS[i]} below `}
            {number(Number(value))}
          </span>
        ))}
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">from</th>
            <th scope="col">to</th>
            <th scope="col">count</th>
            <th scope="col" class="bins-bar">
              <span class="unseen">share</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {counts.map((n, i) => (
            <tr key={i}>
              <td>{number(edges[i]!, 5)}</td>
              <td>{number(edges[i + 1]!, 5)}</td>
              <td>{n.toLocaleString('en')}</td>
              <td class="bins-bar">
                <span style={{ width: `${(100 * n) / top}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
