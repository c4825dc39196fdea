// Prints what the page weighs, and fails past the budget.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

const BUDGET_KB = 300
const FIRST_KB = 160 // what a browser loads before the first chart
const root = new URL('../../src/sightglass/server/static', import.meta.url).pathname
const walk = (dir) =>
  readdirSync(dir).flatMap((name) => {
    const path = join(dir, name)
    return statSync(path).isDirectory() ? walk(path) : [path]
  })
let total = 0
let first = 0
for (const path of walk(root)) {
  const bytes = gzipSync(readFileSync(path)).length
  total += bytes
  if (/index[^/]*\.(html|js|css)$/.test(path)) first += bytes
  console.log(`${(bytes / 1000).toFixed(1).padStart(7)} kB gzipped  ${path.slice(root.length + 1)}`)
}
console.log(`${(total / 1000).toFixed(1).padStart(7)} kB gzipped in all (budget ${BUDGET_KB})`)
console.log(`${(first / 1000).toFixed(1).padStart(7)} kB gzipped before the first chart (budget ${FIRST_KB})`)
if (total > BUDGET_KB * 1000 || first > FIRST_KB * 1000) process.exit(1)
