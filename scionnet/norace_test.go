//go:build !race

package scionnet_test

const raceDetector = false
