// What the tensor is compared with: another step, run or tag; and how.

import { labelOf, runs } from '../../data/runs'
import { isTensor, useTagsOf } from '../../data/tags'
import type { When } from '../../data/tensors'
import type { Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { NumberInput } from '../../ui/NumberInput'
import { IconButton } from '../../ui/parts'
import { number } from '../../views/format'
import { readAgainst, writeAgainst, type Against } from './against'

const WHENS: readonly (readonly [When, string])[] = [
  ['previous', 'the step before'],
  ['first', 'the first step'],
  ['same', 'the same step'],
]
const MEASURES = [
  ['difference', 'difference'],
  ['relative', 'relative difference'],
  ['close', 'is close'],
] as const

/** Runs that may lack the tag are left out, if they are among the newest: each costs a request. */
const N_ASKED = 100

interface MinusProps {
  run: string
  tag: Tag
  step: number
  /** The step that it is compared with; null where there is none. */
  other: number | null
}

export function Minus({ run, tag, step, other }: MinusProps) {
  const against = readAgainst(at.minus.value)
  const keys = (runs.value ?? []).map(({ key }) => key)
  const { values: tags } = useTagsOf(against ? [run, ...keys.filter((key) => key !== run).slice(0, N_ASKED)] : [])
  const versus = at.versus.value || tag.name
  const set = (next: Against | null) => update({ minus: next ? writeAgainst(next) : '', ...(next === null && { versus: '' }) })
  if (!against) {
    return (
      <button type="button" class="toggle" title="Show the difference from another step, run or tensor" onClick={() => set({ run: '', when: 'previous' })}>
        Compare
      </button>
    )
  }
  const fits = (one: Tag) => one.type === 'tensor' && isTensor(one) && (one.shape === tag.shape || one.tag === tag.tag)
  const offered = (key: string) => tags.get(key)?.some((one) => (one.name === versus || (!at.versus.value && one.tag === tag.tag)) && fits(one)) ?? true
  const theirs = (tags.get(against.run || run) ?? []).filter(fits)
  const names = theirs.map((one) => (one.tag === tag.tag ? tag.name : one.name))
  const fixed = typeof against.when === 'number'
  const itself = !against.run && versus === tag.name
  return (
    <div class="minus" role="group" aria-label="Compare with">
      <select aria-label="How to compare" value={at.measure.value} onChange={({ currentTarget }) => update({ measure: currentTarget.value as (typeof MEASURES)[number][0] })}>
        {MEASURES.map(([measure, name]) => (
          <option key={measure} value={measure}>
            {name}
          </option>
        ))}
      </select>
      {at.measure.value === 'close' &&
        (['rtol', 'atol'] as const).map((name) => (
          <label key={name} class="tool-select" title={name === 'rtol' ? 'Relative tolerance, of the magnitude of the other value' : 'Absolute tolerance'}>
            <span>{name}</span>
            <NumberInput min={0} step="any" value={at[name].value} onNumber={(value) => update({ [name]: value })} />
          </label>
        ))}
      <span>{at.measure.value === 'close' ? 'to' : 'from'}</span>
      <select aria-label="Run to compare with" value={against.run} onChange={({ currentTarget }) => set({ run: currentTarget.value, when: currentTarget.value ? 'same' : 'previous' })}>
        <option value="">this run</option>
        {keys
          .filter((key) => key !== run && (key === against.run || offered(key)))
          .map((key) => (
            <option key={key} value={key}>
              {labelOf(key)}
            </option>
          ))}
      </select>
      {(names.length > 1 || versus !== tag.name) && (
        <select aria-label="Tensor to compare with" value={versus} onChange={({ currentTarget }) => update({ versus: currentTarget.value === tag.name ? '' : currentTarget.value })}>
          {[...new Set([tag.name, versus, ...names])].map((name) => (
            <option key={name} value={name}>
              {name === tag.name ? tag.tag : (theirs.find((one) => one.name === name)?.tag ?? name)}
            </option>
          ))}
        </select>
      )}
      <select
        aria-label="Step to compare with"
        value={fixed ? 'number' : against.when}
        onChange={({ currentTarget }) => {
          const when = currentTarget.value
          set({ ...against, when: when === 'number' ? (other ?? step) : (when as When) })
        }}
      >
        {WHENS.filter(([when]) => !itself || when !== 'same' || against.when === 'same').map(([when, name]) => (
          <option key={when} value={when}>
            {name}
          </option>
        ))}
        <option value="number">step …</option>
      </select>
      {fixed && <NumberInput step="any" aria-label="Step number to compare with" value={Number(against.when)} onNumber={(when) => set({ ...against, when })} />}
      <span class="muted">{other === null ? '' : `step ${number(other, 12)}`}</span>
      <IconButton icon="close" label="Stop comparing" onClick={() => set(null)} />
    </div>
  )
}
