// The views over the runs of the table: a scatter, the best so far, parallel coordinates. What is selected in one is selected in
// all, in the table, and in the charts.

import { useColumn } from '../../../data/columns'
import { update } from '../../../state/state'
import { Choice, IconButton, Toggle } from '../../../ui/parts'
import { minus } from '../../../views/format'
import { Parallel } from './Parallel'
import { Scatter } from './Scatter'
import type { Axis } from '../../../data/axis'
import { across, acrossAxis, axes, axisNames, correlations, key, lowest, MIN_RUNS, offered, OWN, setLog, startAxis, tint, up, upAxis } from './state'

export function LinkedViews() {
  const [x, y, all] = [acrossAxis.value, upAxis.value, axes.value]
  const best = lowest.value ? 'lowest' : 'highest'
  return (
    <section class="linked" aria-label="Views over the runs">
      {[...new Set([x.name, y.name, tint.value, ...axisNames.value])].map((name) => name && <Reads key={name} name={name} />)}
      <article class="linked-card" aria-label="Scatter">
        <header>
          <Column label="Up" value={up.value} onChange={(up) => update({ up })} />
          <Log axis={y} />
          <span class="muted">over</span>
          <Column label="Across" value={across.value} onChange={(across) => update({ across })} />
          <Log axis={x} />
        </header>
        <Scatter label={`Scatter of ${y.name} over ${x.name}`} x={x} y={y} />
      </article>
      <article class="linked-card" aria-label="Best so far">
        <header>
          <span class="linked-title" title={up.value}>
            Best {up.value} so far
          </span>
          <Choice
            label="What is best"
            value={best}
            options={[
              ['lowest', 'Lowest'],
              ['highest', 'Highest'],
            ]}
            onChange={(one) => update({ best: one === 'lowest' ? 'min' : 'max' })}
          />
        </header>
        <Scatter label={`The ${best} ${y.name} so far, by the start of the runs`} x={startAxis.value} y={y} best={best} />
      </article>
      <Correlations />
      <article class="linked-card linked-wide" aria-label="Parallel coordinates">
        <header>
          <span class="muted">Colour</span>
          <Column label="Colour" value={tint.value} none="the runs' own" onChange={(name) => update({ tint: name || OWN })} />
          {key.value.named.map(({ color, text }) => (
            <span key={text} class="linked-key">
              <i style={{ background: color }} /> {text}
            </span>
          ))}
          {key.value.n_more > 0 && <span class="muted">and {key.value.n_more} more</span>}
          <span class="linked-more">
            <Column label="Add an axis" value="" none="Add an axis …" onChange={(name) => name && update({ axes: [...axisNames.peek().filter((one) => one !== name), name] })} />
          </span>
        </header>
        <div class="linked-scroll">
          <div class="linked-axes" style={{ minWidth: `${82 * all.length}px` }}>
            <div class="linked-heads">
              {all.map((axis) => (
                <span key={axis.name} class="linked-head">
                  <span title={axis.name}>{axis.name}</span>
                  <span>
                    <Log axis={axis} />
                    <IconButton icon="close" label={`Remove the axis ${axis.name}`} disabled={all.length < 2} onClick={() => update({ axes: axisNames.peek().filter((one) => one !== axis.name) })} />
                  </span>
                </span>
              ))}
            </div>
            <Parallel axes={all} />
          </div>
        </div>
      </article>
    </section>
  )
}

function Reads({ name }: { name: string }) {
  useColumn(name)
  return null
}

const Log = ({ axis: { name, numeric, log } }: { axis: Axis }) => (numeric && name !== 'started' ? <Toggle label="log" title={`Logarithmic axis of ${name}`} on={log} onChange={(on) => setLog(name, on)} /> : null)

/** What of the configuration the ranked column rises or falls with. */
function Correlations() {
  const all = correlations.value
  return (
    <article class="linked-card" aria-label="Rank correlation">
      <header>
        <span class="linked-title" title={`Spearman's rank correlation of ${up.value} with the configuration, over the runs of the table`}>
          Rank correlation
        </span>
        <span class="muted">runs</span>
      </header>
      <ol class="linked-ranks">
        {all.map(({ name, rho, n }) => (
          <li key={name}>
            <button type="button" class="text-button" title={`Draw over ${name}`} onClick={() => update({ across: name })}>
              {name}
            </button>
            <span class="linked-bar" aria-hidden="true">
              <i class={rho < 0 ? 'falls' : ''} style={{ width: `${50 * Math.abs(rho)}%` }} />
            </span>
            <b>{minus(`${rho > 0 ? '+' : ''}${rho.toFixed(2)}`)}</b>
            <span class="muted">{n.toLocaleString('en')}</span>
          </li>
        ))}
      </ol>
      {all.length === 0 && <p class="muted linked-none">It needs {MIN_RUNS} runs that have {up.value} and differ in a number of their configuration.</p>}
    </article>
  )
}

interface ColumnProps {
  label: string
  value: string
  /** What stands for no column, if that can be chosen. */
  none?: string
  onChange: (name: string) => void
}

function Column({ label, value, none, onChange }: ColumnProps) {
  const known = none !== undefined || offered.value.some(([, names]) => names.includes(value))
  return (
    <select aria-label={label} title={`${label}: ${value || none}`} value={value} onChange={({ currentTarget }) => onChange(currentTarget.value)}>
      {none !== undefined && <option value="">{none}</option>}
      {!known && <option value={value}>{value}</option>}
      {offered.value.map(([kind, names]) => (
        <optgroup key={kind} label={kind}>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </optgroup>
      ))}
    </select>
  )
}
