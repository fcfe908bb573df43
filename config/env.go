package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// envPrefix is the prefix of variables that set keys. envFile names the file; it is read
// by the callers of Load.
const (
	envPrefix = "FEEDBRIDGE_"
	envFile   = envPrefix + "CONFIG"
)

// serviceLink matches the variables that Kubernetes and Docker set in every container
// beside a service whose name starts with feedbridge, as in
// FEEDBRIDGE_PORT_9321_TCP_ADDR=10.0.0.7. No key ends like these.
var serviceLink = regexp.MustCompile(`_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readVariables reads the values of FEEDBRIDGE_ variables. A variable with several targets is
// resolved by the names in the file, not by those in other variables.
func (l *loader) readVariables() {
	inFile, layer := maps.Clone(l.locations), viper.New()
	for _, variable := range slices.Sorted(maps.Keys(l.environ)) {
		if !strings.HasPrefix(variable, envPrefix) || variable == envFile {
			continue
		}
		at := location{source: variable}
		targets := findTargets(variable, inFile)
		switch {
		case len(targets) == 1:
			l.setText(layer, targets[0].setting, targets[0].settingPath(), l.environ[variable], at)
		case len(targets) > 1:
			l.reportAt(at, targets[0].settingPath(), fmt.Sprintf("the variable can mean this key and %s; set it in the file instead", targets[1].settingPath()))
		case !serviceLink.MatchString(variable):
			text := "no key of the configuration has this variable; want " + envPrefix + " and the key in capitals, with _ in place of . and -"
			l.errs = append(l.errs, &Error{Source: variable, Text: text})
		}
	}
	l.addLayer(layer.AllSettings())
}

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
	name = strings.ToLower(strings.ReplaceAll(spelled, "_", "-"))
	return name, ok && nameForm.MatchString(name) && spelled == strings.ToUpper(spelled)
}
