// Finding, comparing, the look of the cells, copying and downloading.

import { useState } from 'preact/hooks'
import { fetchFile, type Other, type Place } from '../../data/tensors'
import type { Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { NumberInput } from '../../ui/NumberInput'
import { Choice, IconButton, Menu, Toggle } from '../../ui/parts'
import { tellError } from '../../ui/toasts'
import { saveFile } from '../../views/export'
import { copyCells } from './copy'
import { Minus } from './Minus'
import type { Shown } from './useTable'

const PLACES: readonly (readonly [Place, string])[] = [
  ['nan', 'NaN'],
  ['inf', 'Inf'],
  ['min', 'min'],
  ['max', 'max'],
  ['absmax', '|max|'],
]
const NOT_CLOSE: typeof PLACES = [['zero', 'not close']]
const SHADES = [
  ['most', 'to 4σ'],
  ['max', 'to max'],
  ['none', 'off'],
] as const
const NOTATIONS = [
  ['auto', 'Auto'],
  ['fixed', '0.00'],
  ['scientific', '1e−3'],
] as const

interface ToolsProps {
  shown: Shown
  run: string
  tag: Tag
  step: number
  /** What it is compared with, at a step. */
  other: (Other & { step: number }) | null
  onFind: (what: Place, name: string, everywhere: boolean) => void
}

/** The tools of the table. */
export function Tools({ shown, run, tag, step, other, onFind }: ToolsProps) {
  const [everywhere, setEverywhere] = useState(false)
  const download = (format: 'csv' | 'npy') =>
    fetchFile(shown.part, format).then((blob) => saveFile(`${tag.tag}-${step}${other ? `-${other.measure}` : ''}.${format}`, blob), tellError)
  return (
    <div class="tensor-tools">
      <div class="finds" role="group" aria-label="Find">
        <span class="muted">Find</span>
        {(other?.measure === 'close' ? NOT_CLOSE : PLACES).map(([what, name]) => (
          <button key={what} type="button" title={`Go to the ${['nan', 'inf', 'zero'].includes(what) ? 'first ' : ''}${name}${other ? ' of the comparison' : ''} ${everywhere ? 'of all steps' : 'at this step'}`} onClick={() => onFind(what, name, everywhere)}>
            {name}
          </button>
        ))}
        <Toggle label="all steps" title="Search all steps, not only this one" on={everywhere} onChange={setEverywhere} />
      </div>
      <Minus run={run} tag={tag} step={step} other={other?.step ?? null} />
      <div class="formats">
        <Choice label="Number format" options={NOTATIONS} value={at.notation.value} onChange={(notation) => update({ notation })} />
        <label class="tool-select">
          <span>Digits</span>
          <NumberInput min={0} max={17} value={at.digits.value} onNumber={(digits) => update({ digits: Math.min(17, Math.max(0, Math.round(digits))) })} />
        </label>
        <label class="tool-select" title="Negative blue, positive orange. The strongest colour is the largest magnitude in the whole tensor, or the mean plus four standard deviations if that is less">
          <span>Colours</span>
          <select value={at.shade.value} onChange={({ currentTarget }) => update({ shade: currentTarget.value as (typeof SHADES)[number][0] })}>
            {SHADES.map(([shade, name]) => (
              <option key={shade} value={shade}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Toggle label="Heat map" title="A picture of the same slice" on={at.heat.value} onChange={(heat) => update({ heat })} />
      </div>
      <span class="tool-files">
        <IconButton icon="copy" label="Copy the slice, tab-separated" onClick={() => void copyCells(shown, [0, shown.rows.n], [0, shown.columns?.n ?? 1])} />
        <Menu
          icon="download"
          label="Download the slice"
          items={[
            { text: 'CSV', onClick: () => void download('csv') },
            { text: 'NumPy (npy)', onClick: () => void download('npy') },
          ]}
        />
      </span>
    </div>
  )
}
