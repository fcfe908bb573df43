package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"

	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/setting"
)

// A validator reports errors in values that are well formed.
type validator struct {
	cfg *Config
	// buses are the names of the buses.
	buses []string
	// feedless accepts a configuration without feeds.
	feedless bool
	// topics has the names of the feeds of each topic, by bus and topic.
	topics map[[2]string][]string
	*diagnostics
}

func (v *validator) checkConfig() {
	cfg := v.cfg
	for i, name := range cfg.SecretParameters {
		if err := safetext.CheckParameter(name); err != nil {
			v.addError(fmt.Sprintf("secret_parameters[%d]", i), err.Error())
		}
	}
	v.checkAdmin(cfg.Admin)
	v.checkBuses()
	v.checkFeeds()
	v.checkLists()
	if cfg.Fleet != nil {
		v.checkFleet(cfg.Fleet)
	}
	if cfg.Serve != nil {
		v.checkServe(cfg.Serve)
	}
}

func (v *validator) checkAdmin(a Admin) {
	if a.Listen != "" {
		v.checkListen("admin.listen", a.Listen, "; or off")
	}
	if _, isFile := a.Token.File(); a.Token != "" && !isFile {
		if err := checkToken("it", a.Token); err != nil {
			v.addError("admin.token", err.Error())
		}
	}
	for i, host := range a.Hosts {
		v.require(hostForm.MatchString(host), fmt.Sprintf("admin.hosts[%d]", i), "want a host name without a port, such as feedbridge.example.com")
	}
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func (v *validator) checkBuses() {
	embedded := ""
	for _, name := range v.buses {
		bus, path := v.cfg.Buses[name], joinPath("buses", name)
		switch {
		case len(v.locations.namesBelow(path)) != 1:
			v.addError(path, "want exactly one kind of bus, nats, kafka or embedded")
		case bus.NATS != nil:
			v.reportAll(joinPath(path, "nats"), bus.NATS.Validate())
		case bus.Kafka != nil:
			v.reportAll(joinPath(path, "kafka"), bus.Kafka.Validate())
		case embedded != "":
			v.addError(joinPath(path, "embedded"), fmt.Sprintf("the bus %s is embedded already; only one bus can be embedded", embedded))
		default:
			embedded = name
			v.checkListen(joinPath(path, "embedded.listen"), bus.Embedded.Listen, "")
			v.require(v.cfg.DataDir != "", "data_dir", fmt.Sprintf("must not be empty, as the bus %s keeps its streams there", name))
		}
	}
}

// maxFleetName is the most characters of the name of a fleet. It is part of the names of a
// stream and of a consumer group.
const maxFleetName = 64

func (v *validator) checkFleet(f *Fleet) {
	switch {
	case f.Name == "":
		v.addError("fleet.name", "is missing; want a name that all copies of the fleet have, such as feedbridge")
		return
	case !nameForm.MatchString(f.Name):
		v.addError("fleet.name", badNameText(f.Name))
	case len(f.Name) > maxFleetName:
		v.addError("fleet.name", fmt.Sprintf("must have %d characters or fewer", maxFleetName))
	}
	if f.Advertise != "" {
		host, port, err := net.SplitHostPort(f.Advertise)
		number, notNumber := strconv.ParseUint(port, 10, 16)
		ip := net.ParseIP(host)
		v.require(err == nil && notNumber == nil && number > 0 && (ip != nil && !ip.IsUnspecified() || hostForm.MatchString(host)), "fleet.advertise",
			"want the host:port at which the other copies reach admin.listen of this one, such as 10.0.0.5:9321")
	}
	v.checkBusName("fleet.bus", f.Bus)
	if v.cfg.Buses[f.Bus].Embedded != nil {
		v.addError("fleet.bus", fmt.Sprintf("the bus %s is embedded in one copy and ends with it; a fleet needs a NATS system or a Kafka cluster that all copies use", f.Bus))
	}
}

// checkBusName checks the name of the bus of a feed, which is at path.
func (v *validator) checkBusName(path, bus string) {
	switch {
	case bus == "":
		v.addError(path, "there are several buses; want "+setting.OrList(v.buses))
	case v.suppressed["buses"] || v.suppressed[joinPath("buses", quoteKey(bus))]: // reported there
	case !slices.Contains(v.buses, bus):
		v.addError(path, fmt.Sprintf("there is no bus %q; want %s", bus, setting.OrList(v.buses)))
	}
}

// checkListen checks an address at path. The error lists also or.
func (v *validator) checkListen(path, listen, or string) {
	_, port, err := net.SplitHostPort(listen)
	_, notNumber := strconv.ParseUint(port, 10, 16)
	v.require(err == nil && notNumber == nil, path, "want host:port, such as 127.0.0.1:9321"+or)
}

// require reports text unless ok is true.
func (v *validator) require(ok bool, path, text string) {
	if !ok {
		v.addError(path, text)
	}
}

// keyPrefix matches the start of the error of another package: a key of its part of the
// configuration.
var keyPrefix = regexp.MustCompile(`^([a-z0-9_.]+(?:\[[0-9]+\])?): `)

// reportAll reports the errors of another package in its part of the configuration,
// which is at path.
func (v *validator) reportAll(path string, errs []error) {
	for _, err := range errs {
		text := err.Error()
		if m := keyPrefix.FindStringSubmatch(text); m != nil {
			v.addError(joinPath(path, m[1]), text[len(m[0]):])
		} else {
			v.addError(path, text)
		}
	}
}
