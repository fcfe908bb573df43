package deploy_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the generated part of deploy/chart/values.schema.json")

// The values schema of the chart has the schema of the configuration, without what the chart
// sets itself and the embedded bus. With -update it gets it.
func TestChartSchemaHasTheConfiguration(t *testing.T) {
	t.Parallel()
	const file = "chart/values.schema.json"
	text, err := config.Schema()
	must.Succeed(t, err)
	var configuration, values map[string]any
	for document, into := range map[string]*map[string]any{string(text): &configuration, read(t, file): &values} {
		must.Succeed(t, json.Unmarshal([]byte(document), into))
	}
	values["$defs"] = configuration["$defs"]
	for _, key := range []string{"$schema", "$defs", "title"} {
		delete(configuration, key)
	}
	take := func(from any, path ...string) {
		for _, key := range path[:len(path)-1] {
			from = from.(map[string]any)[key]
		}
		last := path[len(path)-1]
		if _, ok := from.(map[string]any)[last]; !ok {
			t.Errorf("the schema of the configuration has no %v", path)
		}
		delete(from.(map[string]any), last)
	}
	take(configuration, "properties", "admin")
	take(configuration, "properties", "data_dir")
	take(configuration, "properties", "serve", "properties", "listen")
	take(configuration, "properties", "buses", "additionalProperties", "properties", "embedded")
	configuration["properties"].(map[string]any)["buses"].(map[string]any)["minProperties"] = 1
	configuration["required"] = []any{"buses"}
	values["properties"].(map[string]any)["config"] = configuration

	want, err := json.MarshalIndent(values, "", "  ")
	must.Succeed(t, err)
	if *update {
		must.Succeed(t, os.WriteFile(file, append(want, '\n'), 0o644))
	} else if read(t, file) != string(want)+"\n" {
		t.Errorf("%s does not have the options of today: run this test with -update", file)
	}
}

// The configuration in the plain manifests is valid with the variables that the Deployment has.
func TestManifestsHaveAValidConfiguration(t *testing.T) {
	t.Parallel()
	var file string
	environ := []string{"ORDERS_TOKEN=from-a-secret"}
	for _, document := range strings.Split(read(t, "kubernetes/feedbridge.yaml"), "\n---\n") {
		var manifest struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct{ Name, Value string }
						}
					}
				}
			}
		}
		must.Succeed(t, yaml.Unmarshal([]byte(document), &manifest))
		if text, ok := manifest.Data["feedbridge.yaml"]; ok {
			file = t.TempDir() + "/feedbridge.yaml"
			must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		}
		for _, c := range manifest.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				environ = append(environ, e.Name+"="+e.Value)
			}
		}
	}
	cfg, err := config.Load(config.Options{File: file, Environ: environ})
	must.Succeed(t, err)
	if len(cfg.Feeds) != 1 || cfg.Admin.Listen != "0.0.0.0:9321" || cfg.Serve == nil || cfg.Serve.Listen != "0.0.0.0:8080" {
		t.Errorf("the configuration is %+v", cfg)
	}
}

// The variables by which the chart sets up a fleet are those of the configuration.
func TestFleetVariablesOfTheChart(t *testing.T) {
	t.Parallel()
	if template := read(t, "chart/templates/deployment.yaml"); !strings.Contains(template, "name: FEEDBRIDGE_FLEET_NAME") || !strings.Contains(template, "name: FEEDBRIDGE_FLEET_BUS") {
		t.Error("the chart does not set the variables")
	}
	file := t.TempDir() + "/feedbridge.yaml"
	must.Succeed(t, os.WriteFile(file, []byte("buses: {main: {kafka: {brokers: [kafka:9092]}}}\nfeeds: {orders: {url: https://shop.example.com/feed}}\n"), 0o600))
	for _, environ := range [][]string{{"FEEDBRIDGE_FLEET_NAME=shop"}, {"FEEDBRIDGE_FLEET_NAME=shop", "FEEDBRIDGE_FLEET_BUS=main"}} {
		cfg, err := config.Load(config.Options{File: file, Environ: environ})
		if err != nil || cfg.Fleet == nil || *cfg.Fleet != (config.Fleet{Name: "shop", Bus: "main"}) {
			t.Errorf("%q: error %v, fleet %+v", environ, err, cfg.Fleet)
		}
	}
}
