// Pictures, sounds and texts of a step, and their bytes.

import { useEffect, useState } from 'preact/hooks'
import { useFetched, type Fetched } from './fetched'
import { get, getBytes, messageOf, runPath } from './api'
import { useVersion } from './growth'
import type { Sheet } from '../views/values'
import type { Wave } from '../views/wave'

const MAX_TEXTS = 1_000
const MAX_KEPT = 200

export interface PictureInfo {
  media_type: string
  caption: string
  width: number | null
  height: number | null
}

export interface Pictures {
  step: number
  wall_time: number
  pictures: PictureInfo[]
}

export interface SoundInfo extends Wave {
  rate: number
  n_samples: number
  dtype: string
}

export interface SoundsAt {
  step: number
  wall_time: number
  sounds: SoundInfo[]
}

export interface LoggedText {
  step: number
  wall_time: number
  text: string
}

export function usePictures(run: string, tag: string, step: number | null): Fetched<Pictures> {
  const key = step === null ? null : JSON.stringify([run, tag, step])
  return useFetched(key, (abort) => get<Pictures>(runPath(run, '/pictures'), { tag, step: step ?? undefined }, abort))
}

export function useSounds(run: string, tag: string, step: number | null): Fetched<SoundsAt> {
  const key = step === null ? null : JSON.stringify([run, tag, step])
  return useFetched(key, (abort) => get<SoundsAt>(runPath(run, '/sounds'), { tag, step: step ?? undefined }, abort))
}

export interface Rows extends Sheet {
  step: number
  n_found: number
  offset: number
}

export function useRows(run: string, tag: string, step: number | null, chosen: Record<string, string | number>): Fetched<Rows> {
  const key = step === null ? null : JSON.stringify([run, tag, step, chosen])
  return useFetched(key, (abort) => get<Rows>(runPath(run, '/rows'), { tag, step: step ?? undefined, ...chosen }, abort))
}

/** The last texts of a tag, the newest last. */
export function useTexts(run: string, tag: string): Fetched<LoggedText[]> {
  return useFetched(`${run} ${tag}`, async (abort) => (await get<{ texts: LoggedText[] }>(runPath(run, '/texts'), { tag, limit: MAX_TEXTS }, abort)).texts, useVersion(run))
}

/** The JSON of a figure of Plotly. */
export function useFigureJson(run: string, tag: string, step: number, index: number): Fetched<string> {
  return useFetched(JSON.stringify([run, tag, step, index]), async () => (await fetchMedia(run, tag, step, index)).text())
}

// Requests need a header, so each picture and sound gets an object URL; recent ones are cached.
const kept = new Map<string, Promise<string>>()

export function fetchMedia(run: string, tag: string, step: number, index: number, toPlay = false): Promise<Blob> {
  return getBytes(runPath(run, '/media'), { tag, step, index, ...(toPlay && { to_play: 'true' }) })
}

/** The address of a picture or a sound. */
export function fetchMediaUrl(run: string, tag: string, step: number, index: number, toPlay = false): Promise<string> {
  const name = JSON.stringify([run, tag, step, index])
  const known = kept.get(name)
  const made = known ?? fetchMedia(run, tag, step, index, toPlay).then((blob) => URL.createObjectURL(blob))
  kept.delete(name)
  kept.set(name, made)
  made.catch(() => kept.delete(name))
  for (const [old, address] of kept) {
    if (kept.size <= MAX_KEPT) break
    kept.delete(old)
    void address.then(URL.revokeObjectURL)
  }
  return made
}

/** The address of a picture; that of the one before stays until it is there. */
export function useMedia(run: string, tag: string, step: number, index: number): { src: string; problem: string | null } {
  const [found, setFound] = useState<{ src: string; problem: string | null }>({ src: '', problem: null })
  useEffect(() => {
    let gone = false
    fetchMediaUrl(run, tag, step, index).then(
      (src) => gone || setFound({ src, problem: null }),
      (error: unknown) => gone || setFound({ src: '', problem: messageOf(error) }),
    )
    return () => void (gone = true)
  }, [run, tag, step, index])
  return found
}
