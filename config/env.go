package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// serviceLink matches the variables that Kubernetes and Docker set in every container
// beside a service whose name starts with feedbridge, as in
// FEEDBRIDGE_PORT_9321_TCP_ADDR=10.0.0.7. No key ends like these.
var serviceLink = regexp.MustCompile(`_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readVariables reads the values of FEEDBRIDGE_ variables. A variable with several targets is
// resolved by the names in the file, not by those in other variables.
func (l *loader) readVariables() {
	inFile, layer := maps.Clone(l.locations), map[string]any{}
	var unknown []string
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
			unknown = append(unknown, variable)
		}
	}
	l.addLayer(layer)
	for _, variable := range unknown {
		l.reportUnknown(variable, inFile)
	}
}

// reportUnknown reports a variable that sets no key, and suppresses errors about the
// setting that was probably meant.
func (l *loader) reportUnknown(variable string, inFile locations) {
	at := location{source: variable}
	meant := nearestVariable(variable, inFile)
	for _, t := range findTargets(meant, inFile) {
		l.suppressMissing(t, at)
	}
	l.errs = append(l.errs, &Error{Source: at.source, Text: "no key of the configuration has this variable" + didYouMean(meant)})
}

// suppressMissing suppresses errors about the setting that a misspelt variable was
// probably meant to set, unless it is set: about the key, or about the whole feed or bus
// if that occurs nowhere else.
func (l *loader) suppressMissing(t target, at location) {
	path := t.settingPath()
	if l.locations.isSet(path) {
		return
	}
	missing := path
	if t.name != "" && !l.locations.isSet(t.ownerPath()) {
		missing = t.ownerPath()
	}
	l.locations.setLocation(path, at)
	l.suppress(missing)
}
