// The tensor to subtract: the same one at another step or in another run.

import { labelOf, runs } from '../../data/runs'
import { useRunTags } from '../../data/runTags'
import { at, update } from '../../state/state'
import { NumberInput } from '../../ui/NumberInput'
import { IconButton } from '../../ui/parts'
import { number } from '../../views/format'
import { readAgainst, writeAgainst, type Against } from './against'

const WHENS = [
  ['previous', 'the step before'],
  ['first', 'the first step'],
  ['same', 'the same step'],
  ['number', 'step …'],
] as const

/** Runs that may lack the tag are left out, if they are among the newest: each costs a request. */
const N_ASKED = 100

interface MinusProps {
  run: string
  tag: string
  step: number
  /** The step that is subtracted. */
  other: number | null
}

export function Minus({ run, tag, step, other }: MinusProps) {
  const against = readAgainst(at.minus.value)
  const others = (runs.value ?? []).map(({ key }) => key).filter((key) => key !== run)
  const { tags } = useRunTags(against ? others.slice(0, N_ASKED) : [])
  const has = (key: string) => tags.get(key)?.some((one) => one.tag === tag && one.type === 'tensor') ?? true
  const set = (next: Against | null) => update({ minus: next ? writeAgainst(next) : '' })
  if (!against) {
    return (
      <button type="button" class="toggle" title="Show the difference from another step or run" onClick={() => set({ run: '', when: 'previous' })}>
        Compare
      </button>
    )
  }
  const fixed = typeof against.when === 'number'
  return (
    <div class="minus" role="group" aria-label="Compare with">
      <span>minus</span>
      <select aria-label="Run to compare with" value={against.run} onChange={({ currentTarget }) => set({ run: currentTarget.value, when: currentTarget.value ? 'same' : 'previous' })}>
        <option value="">this run</option>
        {others
          .filter((key) => key === against.run || has(key))
          .map((key) => (
            <option key={key} value={key}>
              {labelOf(key)}
            </option>
          ))}
      </select>
      <select
        aria-label="Step to compare with"
        value={fixed ? 'number' : against.when}
        onChange={({ currentTarget }) => {
          const when = currentTarget.value
          set({ ...against, when: when === 'number' ? (other ?? step) : (when as Against['when']) })
        }}
      >
        {WHENS.filter(([when]) => against.run || when !== 'same').map(([when, name]) => (
          <option key={when} value={when}>
            {name}
          </option>
        ))}
      </select>
      {fixed && <NumberInput step="any" aria-label="Step number to compare with" value={Number(against.when)} onNumber={(when) => set({ ...against, when })} />}
      <span class="muted">{other === null ? '' : `step ${number(other, 12)}`}</span>
      <IconButton icon="close" label="Stop comparing" onClick={() => set(null)} />
    </div>
  )
}
