import type { Statistics } from '../../data/tensors'
import { cellText, type Cell } from '../../views/cells'

const NUMBERS = ['min', 'max', 'mean', 'std', 'norm'] as const
const COUNTS = [
  ['n', 'values'],
  ['n_negative', '< 0'],
  ['n_zero', '= 0'],
  ['n_positive', '> 0'],
  ['n_nan', 'NaN'],
  ['n_posinf', '+Inf'],
  ['n_neginf', '−Inf'],
] as const

const FORMAT = { notation: 'auto', digits: 5 } as const
const text = (value: Cell): string => cellText(value, FORMAT)

interface StatisticsTableProps {
  rows: readonly (readonly [name: string, statistics: Statistics | null])[]
  problem: string | null
}

/** The statistics of the slice and of the whole tensor, side by side. */
export function StatisticsTable({ rows, problem }: StatisticsTableProps) {
  if (problem) return <p class="field-problem">{problem}</p>
  return (
    <div class="statistics" tabIndex={0} role="region" aria-label="Statistics">
      <table>
        <thead>
          <tr>
            <td />
            {NUMBERS.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
            {COUNTS.map(([name, label]) => (
              <th key={name} scope="col">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, statistics]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {NUMBERS.map((key) => (
                <td key={key} title={statistics ? String(statistics[key]) : undefined}>
                  {statistics ? (statistics.n === 0 ? '–' : text(statistics[key])) : '…'}
                </td>
              ))}
              {COUNTS.map(([key]) => (
                <td key={key} class={statistics && statistics[key] > 0 && /nan|inf/.test(key) ? 'is-odd' : undefined}>
                  {statistics ? statistics[key].toLocaleString('en') : '…'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
