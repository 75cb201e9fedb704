//go:build race

package scionnet_test

const raceDetector = true
