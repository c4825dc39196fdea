// The packages that are built into the bundles, as CycloneDX: the wheel holds it in its `sboms` folder. No time, no random
// number, so that it only changes when the packages do.
import { readFileSync, writeFileSync } from 'node:fs'

export const path = new URL('../javascript.cdx.json', import.meta.url).pathname

export function sbom() {
  const { packages } = JSON.parse(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf-8'))
  const bundled = Object.entries(packages).filter(([place, { dev }]) => place && !dev)
  const components = bundled.map(([place, { version, license, integrity }]) => {
    const name = place.split('node_modules/').at(-1)
    const [algorithm, hash] = integrity.split('-')
    return {
      type: 'library',
      name,
      version,
      purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
      licenses: [{ license: { id: license } }],
      hashes: [{ alg: algorithm.replace('sha', 'SHA-'), content: Buffer.from(hash, 'base64').toString('hex') }],
    }
  })
  return JSON.stringify({ bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, components }, null, 2) + '\n'
}

if (process.argv[1] === new URL(import.meta.url).pathname) writeFileSync(path, sbom())
