package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// envPrefix is the prefix of variables that set keys. envFile names the file; it is read
// by the callers of Load.
const (
	envPrefix = "FEEDBRIDGE_"
	envFile   = envPrefix + "CONFIG"
)

// A target is a setting that a variable can set.
type target struct {
	setting *spec
	// name replaces the * in the path of the setting, if it has one.
	name string
}

func (t target) settingPath() string { return strings.Replace(t.setting.path, "*", t.name, 1) }

// ownerPath returns the path of the feed or bus that has the setting.
func (t target) ownerPath() string {
	before, _, _ := strings.Cut(t.setting.path, "*")
	return before + t.name
}

// findTargets returns the settings that variable sets: none if it is unknown, and several
// if the file has a name for each.
func findTargets(variable string, inFile locations) []target {
	var all []target
	schemaRoot.forEachSetting(func(s *spec) {
		if name, ok := matchVariable(variable, s.path); ok {
			all = append(all, target{s, name})
		}
	})
	if len(all) < 2 {
		return all
	}
	notInFile := func(t target) bool { return !inFile.isSet(t.ownerPath()) }
	if known := slices.DeleteFunc(slices.Clone(all), notInFile); len(known) > 0 {
		return known
	}
	longestKey := slices.MinFunc(all, func(a, b target) int { return len(a.name) - len(b.name) })
	return []target{longestKey}
}

// spellPath returns path as variables write it.
func spellPath(path string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// matchVariable reports whether variable sets a setting with the path pattern, and
// returns the name in place of the *.
func matchVariable(variable, pattern string) (name string, ok bool) {
	before, after, named := strings.Cut(envPrefix+spellPath(pattern), "*")
	if !named {
		return "", variable == before
	}
	rest, ok := strings.CutPrefix(variable, before)
	if !ok {
		return "", false
	}
	spelled, ok := strings.CutSuffix(rest, after)
	name = nameOf(spelled)
	return name, ok && nameForm.MatchString(name) && spelled == strings.ToUpper(spelled)
}

// nameOf returns the name that is spelled in a variable.
func nameOf(spelled string) string {
	return strings.ToLower(strings.ReplaceAll(spelled, "_", "-"))
}

// nearestVariable returns the variable that was most likely meant, or the empty string.
// It tries each way to cut variable into a name and a key, as only the key is likely to
// be misspelt, and prefers a name that the file has.
func nearestVariable(variable string, inFile locations) string {
	keys := map[string][]string{} // by the path of the mapping of names, if they are in one
	schemaRoot.forEachSetting(func(s *spec) {
		if s.documentedPath() != s.path && !strings.HasPrefix(variable, envPrefix+"FEED_DEFAULTS_") && !strings.HasPrefix(variable, envPrefix+"FEEDS_FROM_") {
			return // these are close to the keys of feeds
		}
		above, key, named := strings.Cut(s.path, ".*.")
		if !named {
			above, key = "", s.path
		}
		keys[above] = append(keys[above], spellPath(key))
	})
	typed := strings.TrimPrefix(strings.ToUpper(variable), envPrefix)
	best := nearestSpelled(typed, keys[""])
	delete(keys, "")
	for _, above := range slices.Sorted(maps.Keys(keys)) {
		prefix := spellPath(above) + "_"
		rest, ok := strings.CutPrefix(typed, prefix)
		for i := 1; ok && i < len(rest); i++ {
			if rest[i] != '_' {
				continue
			}
			key := nearestSpelled(rest[i+1:], keys[above])
			if key == "" {
				continue
			}
			meant := prefix + rest[:i+1] + key
			if inFile.isSet(joinPath(above, nameOf(rest[:i]))) {
				return envPrefix + meant
			}
			best = cmp.Or(best, meant)
		}
	}
	if best == "" {
		return ""
	}
	return envPrefix + best
}

// nearestSpelled returns the key that word most likely means. If word names a mapping, it
// returns the first key of that.
func nearestSpelled(word string, keys []string) string {
	if key := nearestWord(word, keys); key != "" {
		return key
	}
	for _, key := range keys {
		if strings.HasPrefix(key, word+"_") {
			return key
		}
	}
	return ""
}
