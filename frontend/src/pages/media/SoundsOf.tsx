// The sounds of a run at a step, to play and to download.

import { fetchMedia, fetchMediaUrl, useSounds } from '../../data/media'
import { IconButton } from '../../ui/parts'
import { tellError } from '../../ui/toasts'
import { saveFile } from '../../views/export'
import { SoundPlayer } from '../../views/SoundPlayer'
import { AtStep, type AtStepProps } from './AtStep'
import { stepUntil } from './tags'

export function SoundsOf(props: AtStepProps) {
  const { run, tag, series, steps, step } = props
  const mine = stepUntil(steps, step)
  const found = useSounds(run.key, series, mine)
  const at = found.value?.step
  const sounds = mine === null || at === undefined ? [] : found.value!.sounds
  const save = (i: number) => void fetchMedia(run.key, series, at!, i).then((blob) => saveFile(`${run.name}-${tag}-${at}-${i}.wav`, blob), tellError)
  return (
    <AtStep {...props} problem={found.problem}>
      <div class={`media-sounds ${found.fresh || mine === null ? '' : 'is-stale'}`}>
        {sounds.map((wave, i) => {
          const name = `${tag}${sounds.length > 1 ? `, sound ${i + 1}` : ''}, step ${at}`
          return (
            <SoundPlayer key={`${at} ${i}`} wave={wave} name={name} load={() => fetchMediaUrl(run.key, series, at!, i, true)}>
              <IconButton icon="download" label={`Download ${name} as WAV`} onClick={() => save(i)} />
            </SoundPlayer>
          )
        })}
      </div>
    </AtStep>
  )
}
