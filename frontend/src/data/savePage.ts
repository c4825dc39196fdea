// What the page shows, saved as one HTML file that needs no server.

import { page } from '../state/state'
import { tell, tellError } from '../ui/toasts'
import { saveFile } from '../views/export'
import { postForBytes } from './api'
import { file } from './file'
import { baseline, filtered, shown } from './runs'
import { addressNow } from './savedViews'

/** The pages that such a file can show. */
const SAVED = ['charts', 'runs', 'media']

export const canSave = (): boolean => !file && SAVED.includes(page.value)

export async function savePage(): Promise<void> {
  if (file) return
  const keys = [...shown.peek(), ...(baseline.peek() ? [baseline.peek()!] : []), ...filtered.peek()].map(({ key }) => key)
  tell('done', 'Making the file …')
  await postForBytes('page-file', { address: addressNow(), runs: [...new Set(keys)] }).then((made) => {
    saveFile(`sightglass-${page.peek()}.html`, made)
    tell('done', `Saved as one file, which needs no server: ${(made.size / 1e6).toFixed(1)} MB`)
  }, tellError)
}
