# Completes commands and flags of PROGRAM. What is typed reaches it as it is: nothing in it is run.
Register-ArgumentCompleter -Native -CommandName PROGRAM -ScriptBlock {
  param($word, $command, $cursor)
  $before = @($command.CommandElements | Where-Object { $_.Extent.EndOffset -lt $cursor } |
    ForEach-Object { $_.Extent.Text })
  $typed = @($before | Select-Object -Skip 1)
  if ($word.StartsWith('-')) { $typed += $word }
  & $before[0] @typed --generate-shell-completion 2>$null | ForEach-Object {
    $token, $description = $_ -split ':', 2
    if ($token -and $token.StartsWith($word)) {
      if (-not $description) { $description = $token }
      [System.Management.Automation.CompletionResult]::new($token, $token, 'ParameterValue', $description)
    }
  }
}
