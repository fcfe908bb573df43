//go:build !race

package feedxml

// underRace is whether the race detector is on, which makes tests ten times as slow.
const underRace = false
