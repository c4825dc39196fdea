// All tensors of a run, by module or ranked: their values at a step at a glance, and a statistic over the steps.

import { useMemo, useState } from 'preact/hooks'
import { useOverview, type Statistics, type TensorOverview } from '../../data/tensors'
import type { Run } from '../../data/types'
import { at, update } from '../../state/state'
import { Icon } from '../../ui/Icon'
import { Empty } from '../../ui/parts'
import { Rows } from '../../ui/Rows'
import { StepBar } from '../../ui/StepBar'
import { cellText, type Cell } from '../../views/cells'
import { number } from '../../views/format'
import { tagSearch } from '../charts/sections'
import { rankOf, ranked } from './rank'
import { treeOf, type Branch } from './tree'

const ROW = 34
const FORMAT = { notation: 'auto', digits: 4 } as const
const NUMBERS = ['norm', 'mean', 'std', 'min', 'max'] as const
const COUNTS = [
  ['n_zero', '= 0'],
  ['n_nan', 'NaN'],
  ['n_inf', 'Inf'],
] as const
export const CURVES = { norm: 'norm', mean: 'mean', std: 'std', min: 'min', max: 'max', n_zero: 'zeros', n_nan: 'NaN' } as const

export function Overview({ run }: { run: Run }) {
  const curve = at.curve.value
  const found = useOverview(run.key, at.step.value, curve)
  const [shut, setShut] = useState<ReadonlySet<string>>(new Set())
  const { matches } = useMemo(() => tagSearch(at.find.value), [at.find.value])
  const tensors = useMemo(() => (found.value?.tensors ?? []).filter(({ tag }) => matches(tag)), [found.value, matches])
  const names = useMemo(() => tensors.map(({ tag }) => tag), [tensors])
  const rows = useMemo(
    () => (at.rank.value ? ranked(tensors, at.rank.value).map((place): Branch => ({ path: names[place]!, label: names[place]!, depth: 0, place, n: 1 })) : treeOf(names, shut)),
    [tensors, names, shut, at.rank.value],
  )
  const heights = useMemo(() => rows.map(() => ROW), [rows.length])
  const toggle = (path: string) => setShut((old) => new Set(old.has(path) ? [...old].filter((one) => one !== path) : [...old, path]))

  if (found.problem) {
    return (
      <p class="banner" role="alert">
        {found.problem}
      </p>
    )
  }
  if (!found.value) return <div class="panel-wait" role="status" aria-label="Reading the tensors" />
  const { steps, n_records, n_pending } = found.value
  return (
    <>
      <StepBar label="Step" steps={steps} step={at.step.value} busy={!found.fresh || n_pending > 0} onStep={(step) => update({ step })} />
      <div class="tensor-tools">
        <label class="tool-select">
          <span>Curve</span>
          <select value={curve} onChange={({ currentTarget }) => update({ curve: currentTarget.value as keyof typeof CURVES })}>
            {Object.entries(CURVES).map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        {at.rank.value && (
          <button type="button" class="button" onClick={() => update({ rank: '' })}>
            By module
          </button>
        )}
        <span class="tensor-note muted" role="status">
          {n_pending > 0 ? `Reading ${(n_records - n_pending).toLocaleString('en')} of ${n_records.toLocaleString('en')} records …` : `${tensors.length.toLocaleString('en')} tensors`}
        </span>
      </div>
      {tensors.length === 0 ? (
        <Empty title="No tensor matches" mark={false} />
      ) : (
        <Rows
          label="Tensors of the run"
          class={`overview ${found.fresh ? '' : 'is-stale'}`}
          heights={heights}
          keyOf={(i) => `${i} ${rows[i]!.path}`}
          header={<Head />}
          row={(i) => {
            const branch = rows[i]!
            return branch.place === null ? <Module branch={branch} open={!shut.has(branch.path)} onToggle={() => toggle(branch.path)} /> : <TensorRow branch={branch} tensor={tensors[branch.place]!} curve={CURVES[curve]} />
          }}
        />
      )}
    </>
  )
}

function Head() {
  const { name, falls } = rankOf(at.rank.value)
  const sort = (key: string) => update({ rank: name !== key ? `-${key}` : falls ? key : '' })
  const column = (key: string, label: string) => (
    <span key={key} class="overview-column">
      <button type="button" class="overview-sort" aria-pressed={name === key} title={`Sort by ${label}`} onClick={() => sort(key)}>
        {label}
        {name === key && (falls ? ' ↓' : ' ↑')}
      </button>
    </span>
  )
  return (
    <div class="overview-row overview-head">
      <span class="overview-name">Tensor</span>
      <span>Values</span>
      {NUMBERS.map((key) => column(key, key))}
      {COUNTS.map(([key, label]) => column(key, label))}
      <span>{CURVES[at.curve.value]} over the steps</span>
    </div>
  )
}

const indent = (depth: number) => ({ paddingLeft: `${8 + 16 * depth}px` })

function Module({ branch, open, onToggle }: { branch: Branch; open: boolean; onToggle: () => void }) {
  return (
    <button type="button" class="overview-module" style={indent(branch.depth)} aria-expanded={open} onClick={onToggle}>
      <Icon name="down" size={12} /> {branch.label} <span class="muted">{branch.n.toLocaleString('en')}</span>
    </button>
  )
}

function TensorRow({ branch, tensor, curve }: { branch: Branch; tensor: TensorOverview; curve: string }) {
  const { statistics, step, shape, tag, name } = tensor
  const odd = statistics ? { n_zero: statistics.n_zero, n_nan: statistics.n_nan, n_inf: statistics.n_posinf + statistics.n_neginf } : null
  return (
    <div class="overview-row">
      <button type="button" class="overview-name" style={indent(branch.depth)} title={`${tag} ${shape}${step === null ? '' : `, step ${number(step, 12)}`}`} onClick={() => update({ tensor: name, as: 'auto' })}>
        {branch.label || tag} <span class="muted">{shape || tensor.type}</span>
      </button>
      <Bars bars={tensor.bars} statistics={statistics} />
      {NUMBERS.map((key) => (
        <span key={key} class="overview-number">
          {statistics ? text(statistics[key]) : ''}
        </span>
      ))}
      {COUNTS.map(([key]) => (
        <span key={key} class={`overview-number ${odd && odd[key] > 0 && key !== 'n_zero' ? 'is-odd' : ''}`} title={odd && odd[key] >= 0 ? `${odd[key].toLocaleString('en')} of ${statistics!.n.toLocaleString('en')} values` : undefined}>
          {odd ? (odd[key] < 0 ? '–' : share(odd[key], statistics!.n)) : ''}
        </span>
      ))}
      <Curve values={tensor.curve} label={curve} />
    </div>
  )
}

const text = (cell: Cell): string => (cell === 'NaN' ? '–' : cellText(cell, FORMAT))

/** A share of all values: never 0 % of some, nor 100 % of not all. */
function share(n: number, all: number): string {
  if (n === 0) return '0'
  if (n === all) return '100%'
  return n / all < 0.001 ? '<0.1%' : n / all > 0.999 ? '>99.9%' : `${((100 * n) / all).toFixed(1)}%`
}

const [BARS_W, BARS_H] = [96, 22]

function Bars({ bars, statistics }: { bars: readonly number[]; statistics: Statistics | null }) {
  if (!statistics) return <span />
  const width = BARS_W / Math.max(1, bars.length)
  return (
    <svg class="overview-bars" width={BARS_W} height={BARS_H} role="img" aria-label={`Values from ${text(statistics.min)} to ${text(statistics.max)}`}>
      <title>{`${text(statistics.min)} … ${text(statistics.max)}`}</title>
      {bars.map((bar, i) => bar > 0 && <rect key={i} x={i * width} width={Math.max(1, width - 0.5)} y={BARS_H - Math.max(1, (bar / 255) * BARS_H)} height={Math.max(1, (bar / 255) * BARS_H)} />)}
    </svg>
  )
}

const [CURVE_W, CURVE_H, PAD] = [128, 22, 2]

function Curve({ values, label }: { values: readonly Cell[]; label: string }) {
  const ys = values.map(Number)
  const finite = ys.filter(Number.isFinite)
  const [low, high] = [Math.min(...finite), Math.max(...finite)]
  const x = (i: number) => PAD + ((CURVE_W - 2 * PAD) * i) / Math.max(1, ys.length - 1)
  const y = (value: number) => (high > low ? PAD + (CURVE_H - 2 * PAD) * (1 - (value - low) / (high - low)) : CURVE_H / 2)
  // A gap stays a gap, and a point between two gaps is a dot.
  const path = ys.map((value, i) => (Number.isFinite(value) ? `${i > 0 && Number.isFinite(ys[i - 1]!) ? 'L' : 'M'}${x(i).toFixed(1)} ${y(value).toFixed(1)}${Number.isFinite(ys[i + 1]!) ? '' : 'h0.01'}` : '')).join('')
  const said = finite.length ? `${label} from ${number(low)} to ${number(high)}, last ${number(ys.at(-1)!)}` : `no ${label}`
  return (
    <svg class="overview-curve" width={CURVE_W} height={CURVE_H} role="img" aria-label={said}>
      <title>{said}</title>
      <path d={path} />
    </svg>
  )
}
