// The sounds of a run at a step, to play and to download.

import { fetchMedia, fetchMediaUrl, useSounds } from '../../data/media'
import { labelOf } from '../../data/runs'
import type { Run } from '../../data/types'
import { IconButton } from '../../ui/parts'
import { tellError } from '../../ui/toasts'
import { saveFile } from '../../views/export'
import { SoundPlayer } from '../../views/SoundPlayer'
import { RunTitle } from './RunTitle'
import { noteOfStep, stepUntil } from './tags'

interface SoundsProps {
  run: Run
  tag: string
  steps: readonly number[]
  /** The step of the slider: shown is the last one until then. */
  step: number
}

export function SoundsOf({ run, tag, steps, step }: SoundsProps) {
  const mine = stepUntil(steps, step)
  const found = useSounds(run.key, tag, mine)
  const at = found.value?.step
  const sounds = mine === null || at === undefined ? [] : found.value!.sounds
  const save = (i: number) => void fetchMedia(run.key, tag, at!, i).then((blob) => saveFile(`${run.name}-${tag}-${at}-${i}.wav`, blob), tellError)
  return (
    <article class="media-run" aria-label={`${tag} of ${labelOf(run.key)}`}>
      <RunTitle run={run} note={noteOfStep(steps, step)} />
      {found.problem && <p class="field-problem media-problem">{found.problem}</p>}
      <div class={`media-sounds ${found.fresh || mine === null ? '' : 'is-stale'}`}>
        {sounds.map((wave, i) => {
          const name = `${tag}${sounds.length > 1 ? `, sound ${i + 1}` : ''}, step ${at}`
          return (
            <SoundPlayer key={`${at} ${i}`} wave={wave} name={name} load={() => fetchMediaUrl(run.key, tag, at!, i, true)}>
              <IconButton icon="download" label={`Download ${name} as WAV`} onClick={() => save(i)} />
            </SoundPlayer>
          )
        })}
        {mine === null && <p class="muted media-none">Nothing up to this step.</p>}
      </div>
    </article>
  )
}
