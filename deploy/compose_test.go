package deploy_test

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// service has the used fields of a service in a compose file.
type service struct {
	Environment map[string]string
}

// The environment configures the feedbridge of each compose file, and its bus is another
// service of the file, at the address that it advertises.
func TestComposeFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("compose*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no compose files: %v", err)
	}
	required := regexp.MustCompile(`\$\{\w+:\?[^}]*\}`)
	for _, file := range files {
		parallel.Run(t, file, func(t *testing.T) {
			var composed struct{ Services map[string]service }
			must.Succeed(t, yaml.Unmarshal([]byte(read(t, file)), &composed))
			var environ []string
			for name, value := range composed.Services["feedbridge"].Environment {
				environ = append(environ, name+"="+required.ReplaceAllString(value, "https://shop.example.com/feed"))
			}
			cfg, err := config.Load(config.Options{Environ: environ})
			must.Succeed(t, err)
			if len(cfg.Buses) == 0 {
				t.Error("there is no bus")
			}
			for _, bus := range cfg.Buses {
				for _, address := range addresses(t, bus) {
					host, _, _ := strings.Cut(address, ":")
					beside, ok := composed.Services[host]
					if !ok {
						t.Errorf("the bus is at %s, and there is no such service", address)
					}
					if bus.Kafka != nil && !givesOut(beside, address) {
						t.Errorf("the broker does not give out the address %s", address)
					}
				}
			}
		})
	}
}

// addresses returns the addresses of a bus, each host:port.
func addresses(t *testing.T, bus config.Bus) []string {
	t.Helper()
	if bus.Kafka != nil {
		return bus.Kafka.Brokers
	}
	u, err := url.Parse(bus.NATS.URL)
	must.Succeed(t, err)
	return []string{u.Host}
}

// givesOut reports whether a broker advertises an address to clients, to which they go from
// then on, and listens at that port.
func givesOut(broker service, address string) bool {
	_, port, _ := strings.Cut(address, ":")
	for listener := range strings.SplitSeq(broker.Environment["KAFKA_ADVERTISED_LISTENERS"], ",") {
		if name, at, _ := strings.Cut(listener, "://"); at == address {
			return slices.Contains(strings.Split(broker.Environment["KAFKA_LISTENERS"], ","), name+"://:"+port)
		}
	}
	return false
}
