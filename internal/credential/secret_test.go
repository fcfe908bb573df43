package credential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestSecretDoesNotShowItself(t *testing.T) {
	const plain = "hunter2"
	type config struct {
		Password Secret
		Many     []Secret
		Map      map[string]Secret
	}
	c := config{Password: plain, Many: []Secret{plain}, Map: map[string]Secret{"a": plain}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "c", c, "s", c.Password)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", c.Password)
	asJSON, err := json.Marshal(c)
	must.Succeed(t, err)
	asYAML, err := yaml.Marshal(c)
	must.Succeed(t, err)
	for _, shown := range []string{
		fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s %q", c, c, c, c.Password, c.Password),
		string(asJSON), string(asYAML), log.String(),
	} {
		if strings.Contains(shown, plain) {
			t.Errorf("it shows in %s", shown)
		}
		if !strings.Contains(shown, "***") {
			t.Errorf("nobody sees that there is one in %s", shown)
		}
	}
	if c.Password.Reveal() != plain {
		t.Error("Reveal does not reveal it")
	}
	if Secret("").String() != "" {
		t.Error("an empty one shows as set")
	}
}
