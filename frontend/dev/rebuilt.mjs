// Fails if what stands in the package is not what the sources make.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { path as sbomPath, sbom } from './sbom.mjs'

const root = new URL('../../src/sightglass', import.meta.url).pathname
const made = mkdtempSync(join(tmpdir(), 'sightglass-page-'))
const BUILDS = [
  { config: 'vite.config.ts', folder: 'server/static' },
  { config: 'vite.views.config.ts', folder: 'views/static' },
]
const listed = (folder) => readdirSync(folder, { recursive: true, withFileTypes: true }).filter((e) => e.isFile()).map((e) => join(e.parentPath ?? e.path, e.name).slice(folder.length + 1)).sort()
if (readFileSync(sbomPath, 'utf-8') !== sbom()) {
  console.error("frontend/javascript.cdx.json is not what package-lock.json says: run 'make page' and commit it")
  process.exitCode = 1
}
try {
  for (const { config, folder } of BUILDS) {
    const [fresh, kept] = [join(made, folder), join(root, folder)]
    execFileSync('npx', ['vite', 'build', '-c', config, '--outDir', fresh, '--emptyOutDir', '--logLevel', 'error'], { stdio: 'inherit' })
    const same = JSON.stringify(listed(fresh)) === JSON.stringify(listed(kept)) && listed(fresh).every((name) => readFileSync(join(fresh, name)).equals(readFileSync(join(kept, name))))
    if (!same) {
      console.error(`src/sightglass/${folder} is not what frontend/ makes: run 'make page' and commit it`)
      process.exitCode = 1
    }
  }
} finally {
  rmSync(made, { recursive: true })
}
