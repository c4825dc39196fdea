// One picture in full size, over the page: through the steps and its neighbours by slider and keys.

import { useState } from 'preact/hooks'
import { usePictures } from '../../data/media'
import { labelOf } from '../../data/runs'
import type { Run } from '../../data/types'
import { update } from '../../state/state'
import { Choice, Dialog, IconButton, Toggle } from '../../ui/parts'
import { StepBar } from '../../ui/StepBar'
import { FullPicture } from './Pictures'
import { PLOTLY } from '../../views/plotly'
import { stepUntil } from './tags'

interface FullProps {
  run: Run
  tag: string
  series: string
  index: number
  steps: readonly number[]
  step: number
  onStep: (step: number | null) => void
}

const ZOOMS = [
  ['0', 'Fit'],
  ['1', '1×'],
  ['2', '2×'],
  ['4', '4×'],
  ['8', '8×'],
] as const

export function Full({ run, tag, series, index, steps, step, onStep }: FullProps) {
  const mine = stepUntil(steps, step)
  const found = usePictures(run.key, series, mine)
  const [zoom, setZoom] = useState<(typeof ZOOMS)[number][0]>('0')
  const pictures = found.value?.pictures ?? []
  const [pixels, setPixels] = useState<boolean | null>(null)
  const close = () => update({ full: '' })
  const go = (by: number) => update({ full: `${run.key}|${Math.max(0, Math.min(pictures.length - 1, index + by))}` })
  return (
    <Dialog label={`${tag} of ${run.name}`} wide onClose={close}>
      <header class="media-full-head">
        <h2>
          {tag} <span class="muted">{labelOf(run.key)}</span>
        </h2>
        {pictures.length > 1 && (
          <span class="media-full-index">
            <button type="button" class="button" disabled={index === 0} onClick={() => go(-1)}>
              Previous
            </button>
            <span>
              {index + 1} of {pictures.length}
            </span>
            <button type="button" class="button" disabled={index >= pictures.length - 1} onClick={() => go(1)}>
              Next
            </button>
          </span>
        )}
        {pictures[index]?.media_type !== PLOTLY && (
          <>
            <Choice label="Size" options={ZOOMS} value={zoom} onChange={setZoom} />
            <Toggle label="Pixels" title="Show each pixel as a square, or smooth" on={pixels ?? (pictures[index]?.width ?? Infinity) <= 512} onChange={setPixels} />
          </>
        )}
        <IconButton icon="close" label="Close" onClick={close} />
      </header>
      {found.value && mine !== null ? (
        <FullPicture run={run} tag={tag} series={series} step={found.value.step} index={index} pictures={pictures} pixels={pixels} zoom={Number(zoom)} />
      ) : (
        <p class="muted">{found.problem ?? (mine === null ? 'Nothing up to this step.' : 'Reading …')}</p>
      )}
      <StepBar label="Step" steps={steps} step={mine} onStep={onStep} />
    </Dialog>
  )
}
