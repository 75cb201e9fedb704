//go:build !small

package main

import (
	"braid/pathsel"
	"braid/testbed"
	"braid/testbed/demo"
	"braid/testbed/report"
	"braid/testbed/scenario"
)

func init() {
	outputs = append(outputs, []output{
		{"testbed status", true, func(p *printer, text string) error {
			printStatus(p, filled[testbed.Status](text))
			return printState(p, filled[testbed.State](text), false)
		}},
		{"scenarios", false, func(p *printer, text string) error { filled[scenarioEntry](text).print(p); return nil }},
		{"scenario table", false, func(p *printer, text string) error {
			return scenario.Table(p, []scenario.Summary{filled[scenario.Summary](text)})
		}},
		{"comparison", false, func(p *printer, text string) error { return filled[report.Comparison](text).Table(p) }},
		{"demo", false, func(p *printer, text string) error { return filled[demo.Result](text).Table(p) }},
		{"replay", true, func(p *printer, text string) error {
			p.printf("%s\n", decisions(filled[[]pathsel.Decision](text)))
			return nil
		}},
	}...)
}
