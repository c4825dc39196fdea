// What is shown beside a tensor: the same one in the runs that the charts show, and others whose names match.

import { useMemo } from 'preact/hooks'
import { labelOf, shown } from '../../data/runs'
import { isAlike, isTensor, useTagsOf } from '../../data/tags'
import type { Tag } from '../../data/types'
import { at, update } from '../../state/state'
import { Search, Toggle } from '../../ui/parts'
import { tagSearch } from '../charts/sections'

/** More lines cannot be told apart, and more histograms not be read. */
const MAX_SHOWN = 12

export interface Place {
  run: string
  tag: string
  /** What tells it from the others. */
  label: string
  n_steps: number
}

/** The tensor itself first, then the others; `n` is how many there are, also of those that are left out. */
export function useBeside(run: string, tag: Tag): { places: Place[]; n: number } {
  const asked = at.otherruns.value || at.beside.value ? [run, ...(at.otherruns.value ? shown.value.map(({ key }) => key).filter((key) => key !== run) : [])] : []
  const { values: tags } = useTagsOf(asked)
  return useMemo(() => {
    const matches = at.beside.value ? tagSearch(at.beside.value).matches : () => false
    const others = asked.flatMap((key) => (tags.get(key) ?? []).filter((one) => isTensor(one) && (isAlike(one, tag) || matches(one.tag))).map((one) => ({ run: key, tag: one.name, shown: one.tag, n_steps: one.n })))
    const all = [{ run, tag: tag.name, shown: tag.tag, n_steps: tag.n }, ...others.filter((one) => one.run !== run || one.tag !== tag.name)]
    const [runsDiffer, tagsDiffer] = [new Set(all.map((one) => one.run)).size > 1, new Set(all.map((one) => one.shown)).size > 1]
    const label = (one: { run: string; shown: string }) => [runsDiffer && labelOf(one.run), (tagsDiffer || !runsDiffer) && one.shown].filter(Boolean).join(' · ')
    return { places: all.slice(0, MAX_SHOWN).map((one) => ({ ...one, label: label(one) })), n: all.length }
  }, [run, asked.join(), tags, tag.name, tag.n, at.beside.value])
}

export function BesideTools({ n }: { n: number }) {
  return (
    <>
      <Toggle label="Other runs" title="The same tensor in the runs that the charts show" on={at.otherruns.value} onChange={(otherruns) => update({ otherruns })} />
      <Search label="Other tensors whose names match" placeholder="Other tensors" value={at.beside.value} problem={tagSearch(at.beside.value).problem} onChange={(beside) => update({ beside })} />
      {n > MAX_SHOWN && (
        <span class="muted" role="status">
          the first {MAX_SHOWN} of {n}
        </span>
      )}
    </>
  )
}
