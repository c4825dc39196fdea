// What is along x: a step, a time, or, by name, a step track or a series.

import { useId } from 'preact/hooks'
import { tracks } from '../../data/scalars'
import { scalarTags } from '../../data/tags'
import { Choice } from '../../ui/parts'
import { kindOfX } from './cards'

interface XChoiceProps {
  x: string
  onChange: (x: string) => void
}

export function XChoice({ x, onChange }: XChoiceProps) {
  const id = useId()
  const other = kindOfX(x) ? '' : x
  return (
    <span class="x-choice">
      <Choice
        label="Horizontal axis"
        value={x}
        options={[
          ['step', 'Step'],
          ['relative', 'Relative'],
          ['wall', 'Wall'],
        ]}
        onChange={onChange}
      />
      <input
        class={other ? 'is-set' : ''}
        list={id}
        value={other}
        placeholder="or by …"
        aria-label="Another horizontal axis: a step track, a tag, or an expression"
        title="Another horizontal axis: a step track such as epoch, a tag, or an expression over tags. Points are paired by their step"
        spellcheck={false}
        autocomplete="off"
        onChange={({ currentTarget }) => onChange(currentTarget.value.trim() || 'step')}
      />
      <datalist id={id}>
        {tracks.value.map((track) => (
          <option key={track} value={track}>
            step track
          </option>
        ))}
        {[...scalarTags.value.keys()].map((tag) => (
          <option key={`tag ${tag}`} value={tag} />
        ))}
      </datalist>
    </span>
  )
}
